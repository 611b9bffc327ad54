#!/bin/sh
# Every check of this project, cheapest first, each stage timed; the first failure ends it.
set -eu
cd "$(dirname "$0")/.."
. tools/stages.sh
PATH="$PWD/.venv/bin:$PATH"
reports=reports
mkdir -p "$reports"

tests() {
    name=$1
    shift
    python -m pytest -q --junitxml="$reports/$name.xml" "$@"
}

acceptance() {
    tests acceptance tests/acceptance --hosts=spark1,spark2 \
        --ssh-config="$(python -m lab ssh-config)" --sudo --cluster=inventory/lab.yaml
}

stage "set-up" sh tools/setup.sh
stage "lint" sh tools/lint.sh
stage "unit and plan tests" tests unit tests/unit tests/plan
stage "lab up" python -m lab up
stage "lab tests" tests lab tests/lab
stage "fault tests" tests faults tests/faults
stage "a served pair" python -m lab restore served
stage "acceptance tests" acceptance
summary
