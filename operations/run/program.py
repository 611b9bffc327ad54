"""The on-host program spark-host, installed so that a host can be undone from its own console."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from pyinfra.api.command import StringCommand

from facts.run.program import INSTALLED, program_archive, program_sha256
from facts.run.unknown import Unknown
from facts.state import HostState
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from stacks.definition import Stack

UNDO_COMMAND = "/usr/local/sbin/spark-converge-undo"


# A link cannot take a folder's name, as the version before left one: the two change names at once.
# renameat2(2): -100 the working folder, 2 RENAME_EXCHANGE; some network file systems have it not.
EXCHANGE = """
import ctypes, os, sys
new, old = map(os.fsencode, sys.argv[1:])
if ctypes.CDLL(None).renameat2(-100, new, -100, old, 2):
    os.rename(old, old + b".old")
    os.rename(new, old)
"""


def install_command() -> str:
    """Unpack into a folder of its own, compile, and once all is on the disk put a link to it in the
    place of the one that was: at any moment there is one whole program, or none yet. What is not
    linked goes last."""
    return (
        f"set -e; umask 022; h={shlex.quote(INSTALLED)}; n=$h.new; rm -rf $n; mkdir -p $n; "
        "base64 -d > $n.zip; python3 -I -m zipfile -e $n.zip $n; rm -f $n.zip; "
        f"python3 -I -m compileall -q $n; echo {program_sha256()} > $n/SHA256; "
        f"v=$h.{program_sha256()[:12]}; until [ ! -e $v ]; do v=$v.1; done; "
        "find $n -exec sync {} +; mv $n $v; ln -s ${v##*/} $n; sync ${h%/*}; "
        f"if [ -d $h ] && [ ! -L $h ]; then python3 -I -c {shlex.quote(EXCHANGE)} $n $h; "
        "else mv -T $n $h; fi; sync ${h%/*}; "
        "for o in $h.*; do [ $o = $v ] || rm -rf $o; done"
    )


def engine_signs(known: Sequence[Stack]) -> str:
    """How spark-host tells the containers of the known stacks, as JSON."""
    kinds = ("compose_projects", "image_repositories", "name_patterns")
    signs = {k: sorted({s for one in known for s in getattr(one.recognise, k)}) for k in kinds}
    return json.dumps(signs)


def undo_text(known: Sequence[Stack]) -> bytes:
    """The console command: it works without the control machine, which may be gone.

    Of an adopted stack it says nothing: each control machine has its own, and such an engine is
    known on the host by how it behaves.
    """
    signs = engine_signs([one for one in known if one.adopted is None])
    call = ["python3", "-I", INSTALLED, "undo", "--words", "--engines", signs]
    return (
        "#!/bin/sh\n"
        "# Gives this host back as it was before spark-converge; --plan only says what that is.\n"
        f'exec {shlex.join(call)} "$@"\n'
    ).encode()


def undo_command(known: Sequence[Stack]) -> StringCommand:
    """Write the console command whole. Not journalled: it must outlive the undo."""
    path, text = shlex.quote(UNDO_COMMAND), undo_text(known)
    return StringCommand(
        f"set -e; umask 022; mkdir -p {path.rsplit('/', 1)[0]}; cat > {path}.new; "
        f'[ "$(wc -c < {path}.new)" -eq {len(text)} ]; '  # less, when its sender was cut off
        f"chmod 0755 {path}.new; sync {path}.new; mv {path}.new {path}",
        _stdin=text.decode(),
    )


def missing(state: HostState, known: Sequence[Stack]) -> list[StringCommand]:
    """What is still to be installed of the program and its console command."""
    commands = []
    if state.program != program_sha256():
        commands.append(StringCommand(install_command(), _stdin=program_archive()))
    if not state.has(UNDO_COMMAND, undo_text(known), 0o755):
        commands.append(undo_command(known))
    return commands


def assess(look: Look) -> Iterator[Finding]:
    found, line = look.state.program, Wanted("host", "on-host program", program_sha256()[:12])
    if isinstance(found, Unknown):
        yield line.unread(found)
    else:
        yield line.judged(found[:12] if found else "absent", found == program_sha256())


@step
def installed(here: Here) -> Commands:
    """
    Install this project's on-host program and its console command, or replace another version.

    + here: this host's share of the run

    Leaves behind: /usr/local/lib/spark-converge (a few KiB) and spark-converge-undo.
    """
    state = here.read()
    here.known(state.program, "on-host program")
    commands = missing(state, here.job.known)
    if not commands:
        here.noop("the on-host program is installed")
        return
    yield from commands
    here.changed()
    if missing(here.read(), here.job.known):
        yield here.refuse(f"{INSTALLED} is not what was sent; is /usr writable?")
