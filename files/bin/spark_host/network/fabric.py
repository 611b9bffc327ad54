"""A netplan change with a way back: tried from /run, kept only after a new connection confirms.

try SECONDS < {"files": {name: text}, "shadow": [name], "delete_links": [name],
               "created_links": [name], "devices": [name]}
    checks the change with `netplan generate` in a scratch root, keeps the live state of "devices"
    in the journal, writes into /run/netplan (a power cut boots the old network), then applies it
    from a unit of its own, so that a dead SSH link does not stop it half way. Unconfirmed after
    SECONDS it is reverted.
check < as for try   {"before", "after"}: `netplan get` without and with the change, on paper
status    trying | applied | confirmed | reverting | reverted | failed, with what netplan said
confirm   moves the files to /etc/netplan (originals journalled) and ends the timer
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from run import journal
from run.command import PROGRAM, Failed, run

from network import live, manager

STATE = "/run/spark-converge/fabric"
ETC, TRIAL, VENDOR = "/etc/netplan", "/run/netplan", "/usr/lib/netplan"
EMPTY = "network:\n  version: 2\n"
UNIT = "spark-converge-fabric"
# A `netplan apply` took 28 s in the lab under load; then the links settle (live.py).
REVERT_S = 30 + live.LIMIT_S


def say(phase: str, message: str = "") -> None:
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    with open(f"{STATE}/phase.new", "w") as file:
        json.dump({"phase": phase, "message": message}, file)
    os.replace(f"{STATE}/phase.new", f"{STATE}/phase")


def status() -> dict[str, Any]:
    try:
        with open(f"{STATE}/phase") as file:
            found: dict[str, Any] = json.load(file)
    except OSError:
        return {"phase": "none", "message": ""}
    return found


def trial_texts(plan: dict[str, Any]) -> dict[str, str]:
    return {**plan["files"], **dict.fromkeys(plan["shadow"], EMPTY)}


def on_paper(root: str) -> None:
    """Copy what netplan reads into a scratch root."""
    for folder in (ETC, TRIAL, VENDOR):
        if os.path.isdir(folder):
            shutil.copytree(folder, root + folder)
    for folder in (ETC, VENDOR):
        os.makedirs(root + folder, exist_ok=True)
    if os.path.islink("/lib"):
        os.symlink("usr/lib", root + "/lib")  # netplan looks below both names
    elif os.path.isdir("/lib/netplan"):
        shutil.copytree("/lib/netplan", root + "/lib/netplan")


def put_on_paper(root: str, plan: dict[str, Any]) -> None:
    for name, text in trial_texts(plan).items():
        path = f"{root}{ETC}/{name}"
        if os.path.exists(path):
            os.unlink(path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text)


def netplan(root: str, *words: str) -> str:
    code, out, err = run(["netplan", *words, "--root-dir", root])
    if code:
        raise Failed(err.strip() or f"netplan {words[0]}: exit status {code}")
    return out


def check(plan: dict[str, Any]) -> str | None:
    """What `netplan generate` says against the merged result, None when it is content."""
    with tempfile.TemporaryDirectory() as root:
        on_paper(root)
        put_on_paper(root, plan)
        try:
            netplan(root, "generate")
        except Failed as error:
            return str(error)
    return None


def merged(plan: dict[str, Any]) -> dict[str, Any]:
    """{"before", "after"}: the whole configuration as netplan merges it; nothing is applied."""
    with tempfile.TemporaryDirectory() as root:
        on_paper(root)
        before = netplan(root, "get")
        put_on_paper(root, plan)
        netplan(root, "generate")
        return {"before": before, "after": netplan(root, "get")}


def remove_trial(plan: dict[str, Any]) -> None:
    for name in trial_texts(plan):
        if os.path.exists(f"{TRIAL}/{name}"):
            os.unlink(f"{TRIAL}/{name}")


def end_trial() -> None:
    """No trial is left to revert or to confirm anything: undo does the whole."""
    run(["systemctl", "stop", UNIT])
    if os.path.exists(f"{STATE}/plan"):
        remove_trial(load_plan())


def delete_links(plan: dict[str, Any]) -> None:
    for name in plan["delete_links"]:
        if os.path.exists(f"/sys/class/net/{name}"):
            run(["ip", "link", "delete", name])


def earlier_trial(seconds: float) -> str | None:
    """Why no trial begins now: the open one finds its confirmation and its way back in STATE."""
    _code, out, _err = run(["systemctl", "is-active", UNIT])
    if out.strip() not in ("active", "activating", "deactivating"):
        return None
    now = time.monotonic()
    deadline = load_plan().get("deadline_s", now + seconds)
    left_s = max(deadline - now, 0) + REVERT_S
    return (
        "an earlier trial of the fabric is still open or being reverted; "
        f"run this again in {left_s:.0f} s"
    )


def keep(plan: dict[str, Any], name: str, value: str, ours: str) -> None:
    """Journal a setting; the plan has the names that this trial is the first to change."""
    if journal.load("settings", name) is None:
        plan.setdefault("first", []).append(name)
    journal.setting(name, value, ours)


def start(seconds: float) -> dict[str, Any]:
    plan = json.load(sys.stdin)
    refusal = earlier_trial(seconds) or check(plan)
    if refusal:
        return {"ok": False, "message": refusal}
    plan["was"] = live.live(plan["devices"])
    for name, was in plan["was"].items():
        keep(plan, f"link.{name}", json.dumps(was), "")
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    os.makedirs(TRIAL, mode=0o755, exist_ok=True)
    plan["deadline_s"] = time.monotonic() + seconds
    with open(f"{STATE}/plan", "w") as file:
        json.dump(plan, file)
    if os.path.exists(f"{STATE}/confirmed"):
        os.unlink(f"{STATE}/confirmed")
    for name, text in trial_texts(plan).items():
        journal.write(f"{TRIAL}/{name}", text.encode(), 0o600)
    say("trying")
    code, _out, err = run(
        ["systemd-run", "--collect", f"--unit={UNIT}"]
        + [sys.executable, "-I", PROGRAM, "fabric", "apply", str(seconds)]
    )
    if code:
        remove_trial(plan)
        journal.forget(plan.get("first", []))
        say("failed", err.strip())
        return {"ok": False, "message": err.strip()}
    return {}


def of_this_boot() -> bool:
    """Was there a trial since the host came up? A power cut ends one and leaves nothing of it."""
    return os.path.exists(f"{STATE}/plan")


def load_plan() -> dict[str, Any]:
    with open(f"{STATE}/plan") as file:
        plan: dict[str, Any] = json.load(file)
    return plan


@contextlib.contextmanager
def decision() -> Iterator[None]:
    """The confirmation or the way back: whichever comes second sees the other one."""
    with open(f"{STATE}/decision", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def put_in_force(plan: dict[str, Any], seconds: float) -> None:
    plan["manager_owned"] = manager.owned(plan["devices"])
    for device in plan["manager_owned"]:
        keep(plan, f"managed.{device}", "yes", "no")
    with open(f"{STATE}/plan", "w") as file:
        json.dump(plan, file)
    manager.hands(plan["manager_owned"], "no")
    delete_links(plan)
    code, out, err = run(["netplan", "apply"], timeout_s=seconds)
    if code:
        raise Failed(f"netplan apply: {live.last_line(err or out) or code}")


def apply(seconds: float) -> dict[str, Any]:
    """Runs inside the unit: apply, wait for the confirmation, else go back."""
    plan = load_plan()
    deadline = time.monotonic() + seconds
    try:
        put_in_force(plan, seconds)
    except (Failed, OSError, ValueError) as error:
        return revert(plan, "failed", str(error))
    say("applied")
    while time.monotonic() < deadline and not os.path.exists(f"{STATE}/confirmed"):
        time.sleep(0.3)
    with decision():
        if os.path.exists(f"{STATE}/confirmed"):
            return {}
        say("reverting", f"no confirmation within {seconds:.0f} s")
    return revert(plan, "reverted", f"no confirmation within {seconds:.0f} s")


def links_of(plan: dict[str, Any]) -> list[str]:
    """Virtual links that the trial created and that must go with it."""
    return [n for n in plan.get("created_links", []) if os.path.exists(f"/sys/class/net/{n}")]


def revert(plan: dict[str, Any], phase: str, message: str) -> dict[str, Any]:
    remove_trial(plan)
    for name in links_of(plan):
        run(["ip", "link", "delete", name])
    try:
        live.restore(plan["was"], plan.get("manager_owned", []))
        # What comes on these links from now on is the owner's, and no undo may take it away.
        journal.forget(plan.get("first", []))
    except (Failed, OSError, ValueError) as error:
        message += f"; going back: {error}"
    say(phase, message)
    return {"ok": False, "message": message}


def confirm() -> dict[str, Any]:
    plan = load_plan()
    with decision():
        now = status()
        if now["phase"] != "applied":
            return {"ok": False, "message": f"nothing to confirm: {now['phase']} {now['message']}"}
        for name, text in plan["files"].items():
            journal.put(f"{ETC}/{name}", 0o600, (0, 0), text.encode())
        for name in plan["shadow"]:
            journal.remove(f"{ETC}/{name}")
        open(f"{STATE}/confirmed", "w").close()
    remove_trial(plan)
    code, _out, err = run(["netplan", "generate"])
    if code:
        return {"ok": False, "message": err.strip()}
    say("confirmed")
    return {}


def main(argv: list[str]) -> dict[str, Any]:
    if argv[0] == "try":
        return start(float(argv[1]))
    if argv[0] == "check":
        return merged(json.load(sys.stdin))
    if argv[0] == "apply":
        return apply(float(argv[1]))
    if argv[0] == "confirm":
        return confirm()
    return status()
