"""Everything in the journal given back on this host: asked first, then done, then read back."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from clocks import cpufreq
from engines import containers
from model import aside
from network import fabric, live
from run import journal
from run.command import Failed
from run.verdicts import subject, verdict
from systemd import links, logind, units, userunits
from watchdogs import holds, starters

from undo import kinds

OUR_UNIT = re.compile(r"/etc/systemd/system/([^/]+\.(?:service|timer|socket|path|mount))$")
SYSTEMD = ("/etc/systemd/", "/etc/rc")
JOBS = (
    *("/var/spool/cron/", "/etc/cron", "/etc/anacrontab"),
    *(hook.partition("*")[0] for hook in starters.HOOKS),
)
LOGIND = "/etc/systemd/logind.conf.d/"
NETPLAN = fabric.ETC + "/"
FABRIC = "fabric links"
ERRORS = (Failed, OSError, ValueError, KeyError)


def everything() -> list[dict[str, Any]]:
    """All entries, those of a systemctl that was cut off included; nothing is written."""
    found = lasting(journal.entries())
    known = {e.get("path") for e in found}
    cut = links.pending()
    for path, old, new in links.differences(cut["links"], cut["units"]) if cut else ():
        if path not in known:
            ours = [journal.fingerprint(new)]
            rest = {"ours": ours, "edits": [], "written": None, "tag": None}
            found.append({"kind": "files", "path": path, **old, **rest})
    return found


def lasting(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the links of a fabric trial that a power cut ended before it wrote any file: the host
    came up with its old network, and what the owner has made of the links since is the owner's."""
    if fabric.of_this_boot() or files_in(entries, NETPLAN):
        return entries
    gone = ("link.", "managed.")
    return [e for e in entries if e["kind"] != "settings" or not e["name"].startswith(gone)]


def files_in(entries: list[dict[str, Any]], *folders: str) -> list[dict[str, Any]]:
    return [
        e
        for e in entries
        if e["kind"] == "files" and (not folders or e["path"].startswith(folders))
    ]


def named(entries: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    return [e for e in entries if e["kind"] == "settings" and e["name"].startswith(prefix + ".")]


def was_live(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """{link: its state before the first change}, as live.py reads it."""
    return {subject(e): json.loads(e["value"]) for e in named(entries, "link")}


def each(
    entries: list[dict[str, Any]], ask: Callable[[dict[str, Any]], dict[str, str]]
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Pair every entry with its verdict; one that cannot be read does not stop the others."""
    for entry in entries:
        try:
            yield entry, ask(entry)
        except ERRORS as error:
            name = entry.get("path") or entry["name"]
            yield entry, verdict(name, "unread", str(error))


def look(
    entries: list[dict[str, Any]], forced: Collection[str]
) -> list[tuple[dict[str, Any] | None, dict[str, str]]]:
    """[(entry, verdict)]; the fabric's links are one verdict, with None for an entry."""
    found: list[tuple[dict[str, Any] | None, dict[str, str]]] = []
    found += each(files_in(entries), lambda e: kinds.look_file(e, forced))
    services = named(entries, "unit")
    shown = units.show([subject(e) for e in services])
    found += each(services, lambda e: look_unit(e, shown[subject(e)]))
    found += each(named(entries, userunits.PREFIX), userunits.look)
    found += each(named(entries, "governor"), kinds.look_governor)
    found += each(named(entries, "cpu_max"), kinds.look_cap)
    profiles = named(entries, "profile")
    daemon = units.show([cpufreq.DAEMON])[cpufreq.DAEMON] if profiles else {}
    found += each(profiles, lambda e: kinds.look_profile(e, daemon))
    found += each(named(entries, "sysctl"), kinds.look_sysctl)
    found += each(named(entries, "aside"), aside.look)
    found += look_containers(named(entries, "restart"))
    found += each(named(entries, "managed"), kinds.look_managed)
    was = was_live(entries)
    if was:
        found.append((None, look_fabric(was, [v for _, v in found])))
    return found


def look_containers(
    policies: list[dict[str, Any]],
) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """A daemon that does not answer leaves these unread and nothing else; one that was removed
    took its containers along."""
    try:
        there = containers.inspect_all() if policies and containers.installed() else []
    except Failed as error:
        why = str(error)
        return [(e, verdict(kinds.container_label(e), "unread", why)) for e in policies]
    return list(each(policies, lambda e: kinds.look_container(e, there)))


def look_unit(entry: dict[str, Any], now: dict[str, str]) -> dict[str, Any]:
    """Its verdict, and for a timer, path or socket what that starts."""
    starts = units.started_by(subject(entry), now)
    return {**kinds.look_unit(entry, now), "starts": starts}


def look_fabric(
    was: dict[str, dict[str, Any] | None], verdicts: list[dict[str, str]]
) -> dict[str, str]:
    edited = [
        v["name"] for v in verdicts if v["verdict"] == "edited" and v["name"].startswith(NETPLAN)
    ]
    try:
        left = live.differences(was, live.live(was))
    except ERRORS as error:
        return verdict(FABRIC, "unread", str(error))
    if left and edited:
        return verdict(FABRIC, "edited", f"{', '.join(edited)} was edited since")
    return verdict(FABRIC, "restore" if left else "same", "; ".join(left))


def section(_: dict[str, Any]) -> dict[str, Any]:
    """The plan as a part of the snapshot: {"entries": [{name, verdict, why}]}."""
    return {"entries": [v for _, v in look(everything(), ())]}


def attempt(
    failures: dict[str, str], name: str, act: Callable[..., object], *arguments: Any
) -> None:
    try:
        act(*arguments)
    except ERRORS as error:
        failures[name] = str(error)


def give_files(
    todo: list[dict[str, Any]], forced: Collection[str], failures: dict[str, str]
) -> None:
    for entry in todo:
        attempt(failures, entry["path"], kinds.give_file, entry, forced)


def stop_own_units(files: list[dict[str, Any]], failures: dict[str, str]) -> None:
    """Units whose file is ours alone end before their file goes."""
    for entry in files:
        own = OUR_UNIT.match(entry["path"])
        if own and not entry["existed"] and not os.path.islink(entry["path"]):
            attempt(failures, entry["path"], units.systemctl, "stop", "--", own[1])


def give_fabric(was: dict[str, dict[str, Any] | None], managed: list[str]) -> None:
    fabric.end_trial()
    live.restore(was, managed)


def give_clocks(todo: list[dict[str, Any]], failures: dict[str, str]) -> None:
    """After the units that ran: a daemon that comes up again sets what it likes."""
    for entry in named(todo, "profile"):
        attempt(failures, "power profile", cpufreq.set_profile, entry["value"])
    for entry in named(todo, "cpu_max"):
        attempt(failures, f"clock cap of {subject(entry)}", kinds.give_cap, entry)
    for entry in named(todo, "governor"):
        attempt(failures, f"governor of {subject(entry)}", kinds.give_governor, entry)


def give_back(
    entries: list[dict[str, Any]],
    looked: list[tuple[dict[str, Any] | None, dict[str, str]]],
    forced: Collection[str],
) -> dict[str, str]:
    """Restore all that can be; {name: why it failed}. In an order in which nothing trips:
    the network before the units that listen on it, cron's jobs and what a link runs last, since a
    watchdog that comes to life again wants the rest to be as it was."""
    failures: dict[str, str] = {}
    todo = [e for e, v in looked if e and v["verdict"] == "restore"]
    fabric_is = next((v["verdict"] for e, v in looked if e is None), "same")
    jobs = files_in(todo, *JOBS)
    stop_own_units(files_in(todo), failures)
    give_files([e for e in files_in(todo) if e not in jobs], forced, failures)
    if files_in(entries, *SYSTEMD):
        attempt(failures, "systemd", units.systemctl, "daemon-reload")
    for entry in named(todo, "sysctl"):
        attempt(failures, f"sysctl {subject(entry)}", kinds.give_sysctl, entry)
    if files_in(entries, LOGIND):
        attempt(failures, "logind", logind.reload)
    hands = [subject(e) for e in named(todo, "managed")]
    if fabric_is == "restore" or ((hands or files_in(todo, NETPLAN)) and fabric_is != "edited"):
        attempt(failures, FABRIC, give_fabric, was_live(entries), hands)
    for entry in named(todo, "aside"):
        attempt(failures, subject(entry), aside.give, entry)
    for entry in named(todo, "restart"):
        attempt(failures, kinds.container_label(entry), kinds.give_container, entry)
    attempt(failures, "units", kinds.start_units, named(todo, "unit"))
    attempt(failures, "units of users", userunits.give, named(todo, userunits.PREFIX))
    give_clocks(todo, failures)
    attempt(failures, "held units", holds.rearm)
    give_files(jobs, forced, failures)
    for entry in files_in(entries):
        new = journal.new_path(entry["path"])  # of a write that was cut short
        attempt(failures, new, journal.take_away, new)
    return failures


def aside_folder() -> str:
    base = f"{journal.ROOT}.undone-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    return next(
        p for n in itertools.count() if not os.path.exists(p := f"{base}-{n}" if n else base)
    )


def set_aside(entries: list[dict[str, Any]]) -> str | None:
    """Move these entries away, out of the journal; the folder that has them now."""
    if not entries:
        return None
    aside = aside_folder()
    for entry in entries:
        name = entry.get("path") or entry["name"]
        path = journal.entry_path(entry["kind"], name)
        journal.make_folder(f"{aside}/{entry['kind']}", 0o700)
        os.rename(path, f"{aside}/{entry['kind']}/{os.path.basename(path)}")
    journal.sync_folder(os.path.dirname(journal.ROOT))
    return aside


def put_aside(entries: list[dict[str, Any]], left: list[dict[str, str]]) -> str | None:
    """Move the journal away whole, or while something is left only what was given back."""
    if left:
        return set_aside(entries)
    aside = aside_folder()
    os.rename(journal.ROOT, aside)
    journal.sync_folder(os.path.dirname(journal.ROOT))
    return aside


def undo(forced: Collection[str]) -> dict[str, Any]:
    """{ok, restored: [name], left: [{name, why}], notes: [sentence], aside: folder}."""
    cut = links.pending()
    if cut:
        links.settle(cut["units"])
    entries = lasting(journal.entries())
    looked = look(entries, forced)
    failures = give_back(entries, looked, forced)
    after = look(lasting(journal.entries()), ())
    wrong = {v["name"] for _, v in after if v["verdict"] in ("restore", "edited", "unread")}
    done = [e for e, v in after if e and v["name"] not in wrong]
    if FABRIC not in wrong:
        done += named(entries, "link")
    left = [
        {"name": v["name"], "why": failures.get(v["name"]) or v["why"] or "it is not as it was"}
        for _, v in after
        if v["name"] in wrong
    ]
    general = ("systemd", "units", "logind", "held units")
    if "held units" in failures or "logind" in failures or left:
        left += [{"name": n, "why": failures[n]} for n in general if n in failures]
    return {
        "ok": not left,
        "restored": sorted({v["name"] for _, v in looked if v["verdict"] == "restore"} - wrong),
        "left": left,
        "notes": [f"{v['name']}: {v['why']}" for _, v in after if v["verdict"] == "gone"],
        "aside": put_aside(done, left),
    }
