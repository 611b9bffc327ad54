#!/bin/sh
# Style and types of everything here.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

ruff check .
ruff format --check .
mypy
# Shell programs by their first line, whatever their names.
git ls-files -co --exclude-standard | while read -r file; do
    [ -f "$file" ] || continue
    IFS= read -r first < "$file" || continue
    case "$first" in
        '#!'*sh | '# shellcheck shell='*) printf '%s\n' "$file" ;;
    esac
done 2> /dev/null | xargs shellcheck
