"""A host's whole state in one exec, shared by all operations until something changes.

A fact in pyinfra is one SSH exec each time it is asked (nothing is cached), so the host is read
once by files/bin/spark_host and the answer kept here. It is thrown away when execution starts
and after each change, so that no operation decides from a state older than that.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from threading import Lock

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host

from facts.run.language import plain
from facts.run.program import END, INSTALLED, program_archive, program_sha256
from facts.state import HostState, state_of, unread


@dataclass(frozen=True)
class Ask:
    """What a job wants to know beyond the fixed parts.

    units: systemd units; user_units: those of users; images: references by digest; shards:
    (directory, lock hash) pairs; files: paths of our own files; words: names in a command that mean
    a known stack; sysctl: kernel settings; ports: TCP ports; lease: of the run that asks (JSON), to
    be taken; extra: parts that are read only when asked for.
    """

    units: tuple[str, ...] = ()
    user_units: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    shards: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    sysctl: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    lease: str = ""
    extra: tuple[str, ...] = ()


class Snapshot(FactBase[HostState]):
    """The host's state by one run of spark-host; installed or not, its text goes along."""

    @staticmethod
    def default() -> HostState:
        return unread("the host did not answer")

    def command(self, ask: Ask) -> StringCommand:
        question = shlex.quote(json.dumps(vars(ask)))
        absent = json.dumps({"ok": False, "message": "python3 is not installed"})
        script = (
            # The input is read to its end, so that whoever sends it does not fail over it.
            "if ! command -v python3 > /dev/null; then cat > /dev/null; "
            f"echo {shlex.quote(absent)}; echo {shlex.quote(END)}; exit 0; fi; "
            # The installed copy keeps its compiled form, which is faster on a slow host.
            f'p={INSTALLED}; if [ "$(cat $p/SHA256 2>/dev/null)" = {program_sha256()} ]; then '
            f"python3 -I $p snapshot {question}; else "
            't=$(mktemp) || exit 1; base64 -d > "$t"; '
            f'python3 -I "$t" snapshot {question}; rm -f "$t"; fi || true'
        )
        return StringCommand(script)

    def process(self, output: list[str]) -> HostState:
        if not output or output[-1] != END:
            return unread(f"answer cut short: {' '.join(output)[-120:]!r}")
        try:
            answer = json.loads("".join(output[:-1]))
            if isinstance(answer, dict) and answer.get("ok") is False:
                return unread(str(answer.get("message")))
            return state_of(answer)
        except (ValueError, RecursionError) as error:
            return unread(f"odd answer: {error}")


class Reader:
    """Snapshots of this run, one per host and phase (detecting changes, executing).

    lease: of this run, taken on each host that is read while executing; empty for none.
    """

    def __init__(self, ask: Ask, lease: dict[str, str] | None = None) -> None:
        self.ask = ask
        self.lease = lease or {}
        self._kept: dict[tuple[str, bool], HostState] = {}
        self._changes: dict[str, int] = {}
        self._locks: dict[str, Lock] = {}

    def read(self, host: Host) -> HostState:
        """The host's state; read now unless it was read in this phase and nothing changed."""
        with self._locks.setdefault(host.name, Lock()):
            key = (host.name, host.state.is_executing)
            while key not in self._kept:
                changes = self._changes.get(host.name, 0)
                state = self._ask(host)
                if changes == self._changes.get(host.name, 0):  # else it may be older than that
                    self._kept[key] = state
            return self._kept[key]

    def _ask(self, host: Host) -> HostState:
        ask = self.ask
        if self.lease and host.state.is_executing:
            ask = replace(ask, lease=self.lease_text())
        plain(host)
        try:
            return host.get_fact(Snapshot, ask=ask, _stdin=program_archive())
        except EOFError:  # out of getpass, where pyinfra asks for sudo's password
            return unread(
                "sudo asks for a password and there is no terminal; "
                "use NOPASSWD or run it from a terminal"
            )

    def lease_text(self) -> str:
        """The lease as spark-host takes it."""
        return json.dumps(self.lease)

    def forget(self, host: Host) -> None:
        """The host was changed: whoever asks next reads it again."""
        self._changes[host.name] = self._changes.get(host.name, 0) + 1
        self._kept.pop((host.name, host.state.is_executing), None)
