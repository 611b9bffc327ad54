"""A host's whole state in one exec, shared by all operations until something changes.

A fact in pyinfra is one SSH exec each time it is asked (nothing is cached), so the host is read
once by files/bin/spark_host and the answer kept here. It is thrown away when execution starts
and after each change, so that no operation decides from a state older than that.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host

from facts import (
    boot,
    containers,
    cpufreq,
    crontab,
    discovered,
    fabric,
    holders,
    images,
    journal,
    lease,
    listeners,
    logind,
    machine,
    maintenance,
    memory,
    oom,
    reach,
    services,
    shards,
    starters,
    sysctl,
    userunits,
)
from facts.machine import Gpus
from facts.shards import Leftover
from facts.unknown import Unknown, parsed

PROGRAM = Path(__file__).parents[1] / "files" / "bin" / "spark_host"
INSTALLED = "/usr/local/lib/spark-converge/spark_host"
END = "--end of spark-host--"


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


@dataclass(frozen=True)
class OwnFile:
    data: bytes
    mode: int


@dataclass(frozen=True)
class HostState:
    """One host as it was at one moment; each part read or Unknown."""

    lease: lease.Lease | Unknown
    boot: boot.Boot | Unknown
    services: services.Services | Unknown
    cpufreq: cpufreq.Cpufreq | Unknown
    fabric: fabric.Fabric | Unknown
    memory: memory.Memory | Unknown
    sysctl: sysctl.Sysctl | Unknown
    logind: logind.Logind | Unknown
    oom: oom.Oom | Unknown
    listeners: listeners.Listeners | Unknown
    crontab: crontab.Crontabs | Unknown
    starters: starters.Starters | Unknown
    maintenance: maintenance.Maintenance | Unknown
    reach: reach.Reach | Unknown
    userunits: userunits.UserUnits | Unknown
    containers: containers.Containers | Unknown
    images: images.Images | Unknown
    shards: shards.Shards | Unknown
    files: Mapping[str, OwnFile | None] | Unknown
    program: str | Unknown | None
    record: Mapping[str, Any] | Unknown
    holders: holders.Holders | Unknown | None  # None: not asked for
    leftovers: Mapping[str, tuple[Leftover, ...]] | Unknown | None
    machine: machine.Machine | Unknown | None  # None: not asked for
    gpu: Gpus | Unknown | None
    discovered: discovered.Discovered | Unknown | None
    journal: tuple[journal.Entry, ...] | Unknown | None  # None: not asked for

    def unknowns(self) -> dict[str, Unknown]:
        """Part -> Unknown, for everything that could not be read."""
        return {n: v for n, v in vars(self).items() if isinstance(v, Unknown)}


def sources() -> list[Path]:
    return sorted(PROGRAM.glob("*.py"))


@cache
def program_sha256() -> str:
    """The same sum as the host takes over its installed copy."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def program_archive() -> str:
    """The on-host program as a zip that python3 can run, in base64."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sources():
            entry = zipfile.ZipInfo(path.name, (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return base64.b64encode(buffer.getvalue()).decode()


def files_of(section: Mapping[str, Any]) -> dict[str, OwnFile | None]:
    return {
        path: None if one is None else OwnFile(base64.b64decode(one["b64"]), one["mode"])
        for path, one in section.items()
    }


def state_of(answer: object) -> HostState:
    """Parse one snapshot document; a part that is missing or odd becomes Unknown."""
    part = answer if isinstance(answer, Mapping) else {}
    return HostState(
        lease=parsed(part.get("lease"), lease.parse),
        boot=parsed(part.get("boot"), boot.parse),
        services=parsed(part.get("services"), services.parse),
        cpufreq=parsed(part.get("cpufreq"), cpufreq.parse),
        fabric=parsed(part.get("fabric"), fabric.parse),
        memory=parsed(part.get("memory"), memory.parse),
        sysctl=parsed(part.get("sysctl"), sysctl.parse),
        logind=parsed(part.get("logind"), logind.parse),
        oom=parsed(part.get("oom"), oom.parse),
        listeners=parsed(part.get("listeners"), listeners.parse),
        crontab=parsed(part.get("crontab"), crontab.parse),
        starters=parsed(part.get("starters"), starters.parse),
        maintenance=parsed(part.get("maintenance"), maintenance.parse),
        reach=parsed(part.get("reach"), reach.parse),
        userunits=parsed(part.get("userunits"), userunits.parse),
        containers=parsed(part.get("containers"), containers.parse),
        images=parsed(part.get("images"), images.parse),
        shards=parsed(part.get("shards"), shards.parse),
        files=parsed(part.get("files"), files_of),
        program=parsed(part.get("program"), lambda s: s["sha256"]),
        record=parsed(part.get("record"), dict),
        holders=parsed(part["holders"], holders.parse) if "holders" in part else None,
        leftovers=parsed(part["leftovers"], shards.leftovers) if "leftovers" in part else None,
        machine=parsed(part["machine"], machine.parse) if "machine" in part else None,
        gpu=parsed(part["gpu"], machine.gpus) if "gpu" in part else None,
        discovered=(parsed(part["discovered"], discovered.parse) if "discovered" in part else None),
        journal=parsed(part["journal"], journal.parse) if "journal" in part else None,
    )


def unread(reason: str) -> HostState:
    """A host of which nothing is known."""
    return state_of({name: {"unknown": reason} for name in HostState.__dataclass_fields__})


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
        self._locks: dict[str, Lock] = {}

    def read(self, host: Host) -> HostState:
        """The host's state; read now unless it was read in this phase and nothing changed."""
        with self._locks.setdefault(host.name, Lock()):
            key = (host.name, host.state.is_executing)
            if key not in self._kept:
                self._kept[key] = self._ask(host)
            return self._kept[key]

    def _ask(self, host: Host) -> HostState:
        ask = self.ask
        if self.lease and host.state.is_executing:
            ask = replace(ask, lease=self.lease_text())
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
        self._kept.pop((host.name, host.state.is_executing), None)
