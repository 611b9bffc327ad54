#!/bin/sh
# Install what `make demo` and `make test` need: packages of the system, and a virtual environment
# in .venv. Nothing to do when all is there. Asks once before it uses apt-get; not when CI=true
# and not without a terminal.
set -eu
cd "$(dirname "$0")/.."

log=reports/setup.log

say() { printf '%s\n' "setup: $*"; }
stop() {
    printf '%s\n' "setup: $*" >&2
    exit 1
}

# Run a command whose output nobody needs to see, but for its end when it fails.
quietly() {
    what=$1
    shift
    mkdir -p reports
    "$@" > "$log" 2>&1 || {
        tail -n 15 "$log" >&2
        stop "$what failed; these were its last lines, all of them are in $PWD/$log"
    }
}

case "$(uname -m)" in
    x86_64) qemu="qemu-system-x86_64 qemu-system-x86" ;;
    aarch64) qemu="qemu-system-aarch64 qemu-system-arm" ;;
    *) stop "this machine is $(uname -m); the lab runs on x86_64 or aarch64" ;;
esac

# One line each: a program that must be there, and the Debian and Ubuntu package that has it.
programs="$qemu
qemu-img qemu-utils
mmdebstrap mmdebstrap
gpg gpg
mke2fs e2fsprogs
docker-registry docker-registry
skopeo skopeo
socat socat
ssh openssh-client
shellcheck shellcheck"

missing_packages() {
    printf '%s\n' "$programs" | while read -r program package; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$program" > /dev/null || printf ' %s' "$package"
    done
    find_python > /dev/null || printf ' python3 python3-venv'
}

# The first Python that is new enough and can make a virtual environment with pip in it.
find_python() {
    for python in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
            2> /dev/null; then
            printf '%s\n' "$python"
            return 0
        fi
    done
    return 1
}

asks() { [ "${CI:-}" != true ] && [ -t 0 ] && [ -t 1 ]; }

install_packages() {
    packages=$1
    command -v apt-get > /dev/null ||
        stop "needed and not installed:$packages (Debian's names); apt-get is not on this" \
            "machine: install them with its own package manager and start again"
    root=
    if [ "$(id -u)" -ne 0 ]; then
        root=sudo
        command -v sudo > /dev/null ||
            stop "needed: root, or sudo, to run: apt-get install$packages"
        asks || sudo -n true 2> /dev/null ||
            stop "sudo asks for a password here; run first: sudo apt-get install$packages"
    fi
    say "to be installed with ${root:+sudo }apt-get (its output goes into $log):$packages"
    if asks; then
        printf '%s' "setup: go on? [Y/n] "
        read -r answer
        case "$answer" in
            "" | [Yy]*) ;;
            *) stop "nothing was installed; the lab needs:$packages" ;;
        esac
    fi
    # Debian's docker-registry package starts a registry on every interface, on the port of the
    # lab's own: it must neither start now nor at the next boot.
    registry=
    case "$packages " in
        *" docker-registry "*) command -v systemctl > /dev/null && registry=docker-registry ;;
    esac
    [ -z "$registry" ] || $root systemctl mask --quiet "$registry" 2> /dev/null || registry=
    # shellcheck disable=SC2086  # a list of package names, and sudo or nothing
    {
        quietly "apt-get update" $root apt-get update
        quietly "apt-get install" $root env DEBIAN_FRONTEND=noninteractive apt-get install --yes \
            --no-install-recommends $packages
    }
    if [ -n "$registry" ]; then
        $root systemctl unmask --quiet "$registry"
        $root systemctl disable --quiet "$registry" 2> /dev/null
    fi
}

# Everything that the virtual environment is made from.
venv_key() {
    "$1" -c 'import sys; print(sys.version, sys.prefix)'
    cksum pyproject.toml
    pwd
}

python=$(find_python) || python=
missing=$(missing_packages)
if [ -n "$missing" ]; then
    install_packages "$missing"
    python=$(find_python) ||
        stop "$(python3 --version 2>&1) with venv found; Python 3.11 or later is needed"
    missing=$(missing_packages)
    [ -z "$missing" ] || stop "still not there after the installation:$missing"
fi

key=$(venv_key "$python")
if [ ! -x .venv/bin/pyinfra ] || [ "$(cat .venv/made-from 2> /dev/null)" != "$key" ]; then
    say "virtual environment in .venv ($("$python" --version); output goes into $log)"
    quietly "python -m venv" "$python" -m venv .venv
    quietly "pip install" .venv/bin/python -m pip install --disable-pip-version-check --editable '.[test]'
    printf '%s\n' "$key" > .venv/made-from
fi
