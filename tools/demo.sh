#!/bin/sh
# From nothing to a completion answered by two virtual hosts; a second run changes nothing.
set -eu
cd "$(dirname "$0")/.."
. tools/stages.sh
PATH="$PWD/.venv/bin:$PATH"

stage "set-up" sh tools/setup.sh
stage "lab up" python -m lab up
stage "serve" pyinfra inventory/lab.py deploys/serve.py -y
stage "completion" python tools/ask.py http://127.0.0.1:18888 lab-model "What is 17*23?"
summary
