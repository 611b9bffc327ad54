#!/bin/sh
# The checks of this project, cheapest first, each stage timed; the first failure ends it.
# With the word "all" also the tests that take minutes each on the lab.
set -eu
cd "$(dirname "$0")/.."
. tools/stages.sh
PATH="$PWD/.venv/bin:$PATH"
reports=reports
chosen='not long'
if [ "${1:-}" = all ]; then chosen=''; fi
mkdir -p "$reports"

tests() {
    name=$1
    shift
    python -m pytest -q --junitxml="$reports/$name.xml" "$@"
}

stage "set-up" sh tools/setup.sh
stage "lint" sh tools/lint.sh
stage "unit and plan tests" tests unit -n 2 --dist loadfile -m "$chosen" \
    tests/unit tests/plan
stage "lab up" python -m lab up
stage "lab tests" tests lab -m "$chosen" tests/lab
stage "fault tests" tests faults -m "$chosen" tests/faults
summary
