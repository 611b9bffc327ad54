"""Kernel settings of the engine stacks: now, and after every boot by a file of our own."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping

from pyinfra.api.command import StringCommand

from facts.memory.sysctl import Sysctl
from facts.run.unknown import Unknown
from facts.state import HostState
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import put, quiet

# Late in the order of names, in which the files of sysctl.d are applied.
PATH = "/etc/sysctl.d/zz-spark-converge.conf"


def text(want: Mapping[str, object]) -> bytes:
    """The file for these settings; a host that lacks one of them passes it over at boot."""
    lines = [f"-{key} = {value}\n" for key, value in want.items()]
    return "".join(["# Written by spark-converge; taken away by its undo.\n", *lines]).encode()


def unsupported(found: Sysctl, want: Mapping[str, object]) -> list[str]:
    """Settings that this kernel does not have."""
    return [key for key in want if found.values.get(key) is None]


def wrong(found: Sysctl, want: Mapping[str, object]) -> dict[str, str]:
    """{key: wanted value} of the live settings that are otherwise."""
    return {
        key: str(value)
        for key, value in want.items()
        if found.values.get(key) not in (None, str(value))
    }


def later(path: str) -> bool:
    """Is a file applied after ours? Of all folders together they go by their bare names."""
    return posixpath.basename(path) > posixpath.basename(PATH)


def overruled(found: Sysctl, want: Mapping[str, object]) -> list[str]:
    """One sentence for each later file that sets another value, which the next boot would take."""
    said = []
    for key, value in want.items():
        setters = [file for file in found.boot if key in file.values]
        last = setters[-1] if setters else None
        if last is not None and later(last.path) and last.values[key] != str(value):
            said.append(f"{last.path} sets {key} to {last.values[key]} after {PATH}")
    return said


def kept(state: HostState, want: Mapping[str, object]) -> bool:
    """Is our file there, byte for byte?"""
    return state.has(PATH, text(want))


def assess(look: Look) -> Iterator[Finding]:
    """Each setting, live and after the next boot; then our file."""
    found, want = look.state.sysctl, look.settings.sysctl
    for key, value in want.items():
        line = Wanted("memory", f"sysctl {key}", str(value))
        if not isinstance(found, Sysctl):
            yield line.unread(found)
        elif (now := found.values.get(key)) is None:
            yield line.lacking("this kernel has no such setting")
        else:
            late = overruled(found, {key: value})
            yield line.judged("; ".join([now, *late]), now == line.wanted and not late)
    line = Wanted("memory", "sysctl at boot", PATH)
    if isinstance(look.state.files, Unknown):
        yield line.unread(look.state.files)
    else:
        good = kept(look.state, want)
        yield line.judged("as written" if good else "absent or changed", good)


@step
def converged(here: Here) -> Commands:
    """
    Set kernel settings now and at every boot.

    + here: this host's share of the run

    A setting that the kernel lacks is said; a later file of somebody else that overrules ours is
    named and left alone. Undo: the values found are in the journal.
    """
    want = here.settings.sysctl
    state = here.read()
    found = here.known(state.sysctl, "kernel settings")
    for key in unsupported(found, want):
        here.warn(f"unsupported: this kernel has no {key}")
    for sentence in overruled(found, want):
        here.warn(f"{sentence}: the next boot takes that; change it there")
    todo = wrong(found, want)
    if not todo and kept(state, want):
        here.noop("the kernel settings are as wanted")
        return
    if not kept(state, want):
        yield put(PATH, text(want), 0o644)
    if todo:
        yield StringCommand(quiet("sysctls", "set", json.dumps(todo)))
    here.changed()
    now = here.read()
    found = here.known(now.sysctl, "kernel settings")
    seen = [f"{key} is {found.values[key]}" for key in wrong(found, want)]
    if not kept(now, want):
        seen.append(f"{PATH} is not what was written")
    if seen:
        yield here.refuse(f"{', '.join(seen)} after the change")
