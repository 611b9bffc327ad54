#!/bin/sh
# Style and types of everything here.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

ruff check .
ruff format --check .
mypy
# The on-host program's modules are top-level names of their own, so it is checked by itself; 3.10 is
# the oldest Python that mypy knows, and the second line holds the syntax to 3.9.
MYPYPATH=files/bin/spark_host mypy --config-file= --strict --python-version 3.10 \
    files/bin/spark_host/*.py
python -W error -c 'import ast, pathlib, sys
for name in sys.argv[1:]:
    ast.parse(pathlib.Path(name).read_text(), name, feature_version=(3, 9))' \
    files/bin/spark_host/*.py
# Shell programs by their first line, whatever their names.
git ls-files -co --exclude-standard | while read -r file; do
    [ -f "$file" ] || continue
    IFS= read -r first < "$file" || continue
    case "$first" in
        '#!'*sh | '# shellcheck shell='*) printf '%s\n' "$file" ;;
    esac
done 2> /dev/null | xargs shellcheck
