"""Programs that end others for want of memory, and when they would.

All of them wait until available memory and free swap are both low: a host with enough free swap
never sees them act, and one without swap has only the memory threshold. Read from earlyoom 1.8.2
(its own report at the start) and from oomctl of systemd 255 and 257.
"""

from __future__ import annotations

import getopt
import re
from dataclasses import dataclass

from facts.run.unknown import Section, Unknown, parsed

EARLYOOM_SHORT = "m:s:M:S:N:P:r:nkgivdph"
EARLYOOM_LONG = (
    *("prefer=", "avoid=", "ignore=", "ignore-root-user", "sort-by-rss", "kernel-oom"),
    *("dryrun", "syslog", "debug"),
)
EARLYOOM_PERCENT = 10.0
# Where docker puts its containers, by its systemd and its cgroupfs driver.
ENGINE_GROUPS = ("/system.slice", "/docker")


@dataclass(frozen=True)
class Floor:
    """A threshold in percent of the total, in MiB, or both (then the lower one counts)."""

    percent: float | None = None
    mib: float | None = None

    def of(self, total_mib: float) -> float:
        """In MiB."""
        asked = [] if self.percent is None else [self.percent * total_mib / 100]
        return min([*asked, *([] if self.mib is None else [self.mib])])


@dataclass(frozen=True)
class Killer:
    """memory, swap: it acts when available memory and free swap are both at or below these.

    swapless: whether it acts on a host without swap; spares: why it would not end an engine
    anyway; where: the file, with line, in which its thresholds stand; pressure: in which control
    groups of engines it also acts for memory pressure, and above how much, whatever is free.
    """

    name: str
    pid: int
    memory: Floor
    swap: Floor
    swapless: bool
    spares: str | None
    where: str
    option: str
    pressure: str | None = None


@dataclass(frozen=True)
class Oom:
    """unread: name -> why the thresholds of one that runs could not be made out."""

    killers: tuple[Killer, ...]
    unread: dict[str, Unknown]


def first(value: str) -> float:
    """The first of `10,5`: SIGTERM comes at it, SIGKILL at the second."""
    return float(value.split(",", maxsplit=1)[0])


def line_of(text: str | None, pattern: str) -> int | None:
    """Number of the last line that is no comment and matches."""
    found = None
    for number, line in enumerate((text or "").splitlines(), start=1):
        if re.match(pattern, line.strip()):
            found = number
    return found


def at_line(path: str, number: int) -> str:
    return f"{path} line {number}"


def floor(options: dict[str, str], percent: str, kib: str) -> Floor:
    """Of earlyoom's options; its percentages are of what user programs can have, which is less
    than the total: the total makes it act earlier here than there."""
    share = first(options[percent]) if percent in options else None
    size = first(options[kib]) / 1024 if kib in options else None
    if share is None and size is None:
        share = EARLYOOM_PERCENT
    return Floor(share, size)


def earlyoom(found: Section) -> Killer:
    options, _ = getopt.gnu_getopt(list(found["argv"]), EARLYOOM_SHORT, EARLYOOM_LONG)
    said = {name.lstrip("-"): value for name, value in options}
    spares = "it runs with --dryrun" if "dryrun" in said else None
    if "ignore-root-user" in said:
        spares = "it spares root's processes"
    option = "/".join(f"-{o}" for o in ("m", "M") if o in said) or "-m"
    number = line_of(found["text"], r"EARLYOOM_ARGS=")
    # The file is the origin only when the running program has its words.
    line = (found["text"] or "").splitlines()[number - 1] if number else ""
    from_file = number and all(word in line for word in found["argv"] if word.startswith("-"))
    where = at_line(found["file"], number) if number and from_file else "`systemctl cat earlyoom`"
    memory, swap = floor(said, "m", "M"), floor(said, "s", "S")
    return Killer("earlyoom", found["pid"], memory, swap, True, spares, where, option)


def nohang_floor(text: str, key: str) -> Floor:
    found = re.search(rf"^\s*{key}\s*=\s*([\d.]+)\s*([%M])", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no {key}")
    value = float(found[1])
    return Floor(percent=value) if found[2] == "%" else Floor(mib=value)


def nohang(found: Section) -> Killer:
    text, key = found["text"] or "", "soft_threshold_min_mem"
    memory, swap = nohang_floor(text, key), nohang_floor(text, "soft_threshold_min_swap")
    where = at_line(found["file"], line_of(text, rf"{key}\s*=") or 0)
    return Killer("nohang", found["pid"], memory, swap, True, None, where, key)


def covers(group: str) -> bool:
    """Are the containers of docker below this control group?"""
    return group == "/" or any(f"{one}/".startswith(group + "/") for one in ENGINE_GROUPS)


def oomd(found: Section) -> Killer:
    """From oomctl: one limit for the share used of memory and of swap alike."""
    text = found["state"] or ""
    limit = re.search(r"^Swap Used Limit: ([\d.]+)%", text, re.MULTILINE)
    if limit is None:
        raise ValueError("oomctl has no swap limit")
    watched, _, pressed = text.partition("Swap Monitored CGroups:")[2].partition(
        "Memory Pressure Monitored"
    )
    limits = re.findall(r"^\s*Path: (\S+)\n\s*Memory Pressure Limit: (\S+)", pressed, re.MULTILINE)
    pressure = ", ".join(f"{share} in {group}" for group, share in limits if covers(group))
    groups = re.findall(r"^\s*Path: (\S+)", watched, re.MULTILINE)
    spares = None if any(map(covers, groups)) else "it watches no engine's control group for swap"
    if re.search(r"^Dry Run: yes", text, re.MULTILINE):
        spares, pressure = "it is in dry run", ""
    rest = Floor(percent=100 - float(limit[1]))
    number = line_of(found["text"], r"SwapUsedLimit=")
    where = at_line(found["file"], number) if number else f"{found['file']} (its default)"
    name, option = "systemd-oomd", "SwapUsedLimit"
    return Killer(name, found["pid"], rest, rest, False, spares, where, option, pressure or None)


READERS = {"earlyoom": earlyoom, "nohang": nohang, "systemd-oomd": oomd}


def killer(found: Section) -> Killer:
    try:
        return READERS[found["name"]](found)
    except getopt.GetoptError as error:
        raise ValueError(str(error)) from None


def parse(section: Section) -> Oom:
    killers: list[Killer] = []
    unread: dict[str, Unknown] = {}
    for one in section["killers"]:
        read = parsed(one, killer)
        if isinstance(read, Unknown):
            unread[f"{one['name']} (pid {one['pid']})"] = read
        else:
            killers.append(read)
    return Oom(tuple(killers), unread)
