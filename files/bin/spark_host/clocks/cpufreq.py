"""CPU frequency policies, and what else on this host sets their governor.

section: the policies; units whose commands write a governor; what else does and is left alone; the
active power profile.

settle < {"stop", "disable", "mask", "profile"}   takes other owners down for good, as `units down`
    does. What they had set is kept first: a daemon that stops takes its governor with it.
    power-profiles-daemon is first put on its neutral profile: a platform that it has put into
    power-saver stays there when it is stopped.

uncap POLICY ...   gives back the limits that were found before a cap of the owner's file was set
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from run import journal
from run.command import Failed, read, run
from systemd import scopes, units
from watchdogs import crontab, holds, mentions, starters

POLICIES = "/sys/devices/system/cpu/cpufreq"
DAEMON = "power-profiles-daemon.service"
MARKS = "/run/systemd/units/invocation:"  # systemd's own, of what runs; without a question to it
RUNS = f"{MARKS}{DAEMON}"
PROFILE = "profile.power-profiles-daemon"
NEUTRAL = "balanced"
# Since 0.20 it goes by the first name, and before by the second alone.
BUS_NAMES = (
    ("org.freedesktop.UPower.PowerProfiles", "/org/freedesktop/UPower/PowerProfiles"),
    ("net.hadess.PowerProfiles", "/net/hadess/PowerProfiles"),
)
TOOL = re.compile(rb"\bcpufreq-set\b|\bcpupower\b[^\n]*\bfrequency-set\b")
COMMENT = re.compile(rb"^\s*#.*$", re.MULTILINE)
FILE = rb"[^\s;|&<>]*scaling_governor\b"
# How a script writes to a target; one that only reads the governor, or prints it, does none of it.
SHELL = (rb">\s*[\"']?%s", rb"\btee\b[^\n;|&]*?%s", rb"\bof=[\"']?%s")
PYTHON = (
    rb"\bopen\([^\n]*?%s[^\n)]*,\s*[\"'](?:[wa]|r\+)",
    rb"%s[\"']?\s*\)?\s*\.write_(?:text|bytes)\b",
)
XARGS = re.compile(rb"scaling_governor\b[^\n]*\bxargs\b[^\n;|]*\btee\b")
# Variables that stand for the file: of a loop over it, of one over what finds it, assigned.
VARIABLES = (
    re.compile(rb"\bfor\s+(\w+)\s+in\b[^\n;]*scaling_governor\b"),
    re.compile(rb"scaling_governor\b[^\n]*\|\s*while\s+(?:IFS=\S*\s+)?read\s+(?:-r\s+)?(\w+)"),
    re.compile(rb"(\w+)\s*=\s*[\"']?[^\s;\"'(<`]*scaling_governor\b"),
)
# Ours, and what runs the owner's whole boot script: our boot unit comes after that one.
PASSED_OVER = re.compile(r"(spark-converge-.*|rc-local)\.service")


def policies() -> dict[str, dict[str, Any]]:
    """{policy: governor, offered, online_cpus, limits and steps in kHz}.

    back_khz: what uncap would set.
    """
    found = {}
    for folder in sorted(glob.glob(POLICIES + "/policy*")):
        name, cap_khz = os.path.basename(folder), khz(folder + "/scaling_max_freq")
        top_khz = khz(folder + "/cpuinfo_max_freq")
        found[name] = {
            "governor": read(folder + "/scaling_governor"),
            "offered": (read(folder + "/scaling_available_governors") or "").split(),
            "online_cpus": read(folder + "/affected_cpus"),
            "cap_khz": cap_khz,
            "top_khz": top_khz,
            "back_khz": back_khz(name, cap_khz, top_khz),
            "bottom_khz": khz(folder + "/cpuinfo_min_freq"),
            "steps_khz": [
                int(word)
                for word in (read(folder + "/scaling_available_frequencies") or "").split()
            ],
        }
    return found


def back_khz(policy: str, cap_khz: int | None, top_khz: int | None) -> int | None:
    """The limit found before ours where ours is in force, else None.

    At the top of what the CPU can do no limit is in force: each start leaves it there.
    """
    entry = journal.load("settings", f"cpu_max.{policy}")
    if entry is None or cap_khz is None or top_khz is None or cap_khz >= top_khz:
        return None
    ours = str(cap_khz) in entry["ours"] and str(cap_khz) != entry["value"]
    return int(entry["value"]) if ours else None


def khz(path: str) -> int | None:
    text = read(path)
    return int(text) if text and text.isdigit() else None


def writes_governor(text: bytes) -> bool:
    if not (TOOL.search(text) or b"scaling_governor" in text):
        return False
    text = COMMENT.sub(b"", mentions.JOINED.sub(b" ", text))
    if TOOL.search(text) or XARGS.search(text):
        return True
    forms = [form % FILE for form in (*SHELL, *PYTHON)]
    for name in {name for one in VARIABLES for name in one.findall(text)}:
        forms += [form % (rb"\$+\{?" + name + rb"\b") for form in SHELL]
        forms += [form % (rb"\b" + name + rb"\b") for form in PYTHON]
    return any(re.search(form, text) for form in forms)


def sets_governor(commands: bytes, home: str) -> bool:
    """Do commands write a governor, or scripts that they name?"""
    return writes_governor(commands) or any(map(writes_governor, scripts(commands, home)))


def scripts(commands: bytes, home: str) -> Iterator[bytes]:
    for token in dict.fromkeys(mentions.TOKEN.findall(commands)):
        for path in mentions.places(token.decode("latin-1"), home, []):
            yield mentions.text_of(path)


def runs_engine(name: str, path: str, commands: bytes, reader: mentions.Reader) -> bool:
    """Is a unit a container engine itself, or one whose commands or scripts mention an engine?"""
    # The pattern has NVIDIA's units too; some of those set clocks, and none runs an engine.
    if starters.INFRASTRUCTURE.fullmatch(name) and not name.startswith("nvidia-"):
        return True
    of_package = path.startswith(mentions.PACKAGES)
    named = reader.tokens(commands, "/root", packages_too=not of_package)
    return bool(reader.own(commands) or named)


def instances(template: str) -> set[str]:
    """Those that run or start at boot: a template does nothing by itself."""
    stem, _, tail = template.partition("@.")
    links = (f"{folder}/*.*/{stem}@*.{tail}" for folder in scopes.UNIT_FOLDERS)
    linked = {os.path.basename(path) for pattern in links for path in glob.glob(pattern)}
    marks = glob.glob(f"{MARKS}{stem}@*.{tail}")
    return {name for name in linked | {m[len(MARKS) :] for m in marks} if name != template}


def writers(words: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Services whose commands, or scripts that these name, write a governor: those that may be
    taken down, and those that never are, since an engine would end with them.

    words: names that known stacks go by
    """
    found: list[str] = []
    engines: list[str] = []
    reader = mentions.Reader(words)
    for name, paths in starters.files_of(scopes.UNIT_FOLDERS, PASSED_OVER).items():
        held = any(os.path.basename(path) == holds.DROP_IN for path in paths)
        commands = starters.commands_of(paths)
        if not held and sets_governor(commands, "/root"):
            names = instances(name) if "@." in name else [name]
            runs = runs_engine(name, paths[0], commands, reader)
            (engines if runs else found).extend(names)
    return sorted(found), sorted(engines)


def cron_writers() -> Iterator[str]:
    """Path and line of cron jobs that write a governor, as "/etc/cron.d/clocks line 3"."""
    tables = [(path, crontab.home_of(user)) for user, path in crontab.user_tables()]
    tables += [(path, "/root") for path in crontab.system_tables() if not crontab.why_inert(path)]
    for path, home in tables:
        for number, line in enumerate(mentions.text_of(path).split(b"\n"), start=1):
            if not line.lstrip().startswith(b"#") and sets_governor(line, home):
                yield f"{path} line {number}"
    for period in crontab.PERIODIC:
        for path in sorted(glob.glob(f"{crontab.PLACES.periodic}{period}/*")):
            runs = os.path.isfile(path) and not crontab.why_skipped(path)
            if runs and sets_governor(mentions.text_of(path), "/root"):
                yield path


def profile() -> str | None:
    """power-saver, balanced or performance; None while the daemon does not run. Never starts it."""
    if not os.path.islink(RUNS):
        return None
    said = ""
    for name, path in BUS_NAMES:
        words = ["get-property", name, path, name, "ActiveProfile"]
        code, out, err = run(["busctl", "--system", "--auto-start=no", *words], timeout_s=10)
        if code == 0 and out.startswith('s "'):
            return out.strip()[3:-1]
        said = err.strip() or said
    raise Failed(f"power profile: {said}")


def profile_or_why() -> str | dict[str, str] | None:
    """The same, {"unknown": why} where the daemon runs and does not say."""
    try:
        return profile()
    except Failed as error:
        return {"unknown": str(error)}


def set_profile(wanted: str) -> None:
    said = ""
    for name, path in BUS_NAMES:
        words = ["set-property", name, path, name, "ActiveProfile", "s", wanted]
        code, _out, err = run(["busctl", "--system", "--auto-start=no", *words], timeout_s=30)
        if code == 0:
            return
        said = err.strip() or said
    raise Failed(f"power profile {wanted}: {said}")


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """left_alone: phrases, of what writes a governor and is not changed from here."""
    found, engines = writers(ask.get("words", ()))
    return {
        "policies": policies(),
        "writers": units.section({"units": found}) if found else {"units": {}, "triggers": {}},
        "left_alone": [*(f"{name} (runs an engine)" for name in engines), *cron_writers()],
        "profile": profile_or_why(),
    }


def in_force() -> dict[str, str]:
    """{setting: value} of governors and limits, those that cannot be read left out."""
    found = {}
    for name, one in policies().items():
        found[f"governor.{name}"] = one["governor"]
        found[f"cpu_max.{name}"] = one["cap_khz"] and str(one["cap_khz"])
    return {name: value for name, value in found.items() if value}


def keep_in_force() -> dict[str, str]:
    """Journal the governors, and the limits that somebody has set; all that is in force.

    A limit at the top of what the CPU can do is nobody's: in the heat it sinks, and undo would take
    that for an edit. Where one was set the next boot puts it at the top, which is then ours.
    """
    found = in_force()
    tops = {f"cpu_max.{name}": str(one["top_khz"]) for name, one in policies().items()}
    for name, value in found.items():
        ours = tops.get(name, value)
        set_by_somebody = name not in tops or value != ours
        if set_by_somebody and journal.load("settings", name) is None:
            journal.setting(name, value, ours)
    return found


def settle(todo: dict[str, Any]) -> dict[str, Any]:
    before = keep_in_force()
    if todo["profile"]:
        journal.setting(PROFILE, todo["profile"], NEUTRAL)
        set_profile(NEUTRAL)
    try:
        return units.down(todo)
    finally:
        # What a daemon leaves behind when it stops is our doing.
        for name, value in in_force().items():
            if value != before.get(name, value):
                journal.setting(name, before[name], value)


def uncap(names: Iterable[str]) -> dict[str, Any]:
    """An entry that has nothing more to say goes: in the heat the limit of nobody sinks, and undo
    would take that for an edit."""
    now = policies()
    for name in names:
        one, path = now.get(name, {}), f"{POLICIES}/{name}/scaling_max_freq"
        back = one.get("back_khz")
        if back is None:
            continue
        with open(path, "w") as file:
            file.write(f"{back}\n")
        if khz(path) == one["cap_khz"]:
            raise Failed(f"{path} stays {one['cap_khz']} after {back} was written")
        if back == one["top_khz"]:
            journal.forget([f"cpu_max.{name}"])
    return {}


def main(argv: list[str]) -> dict[str, Any]:
    if argv == ["settle"]:
        return settle(json.load(sys.stdin))
    if argv[:1] == ["uncap"]:
        with journal.alone():
            return uncap(argv[1:])
    raise ValueError(f"unknown action {' '.join(argv)}")
