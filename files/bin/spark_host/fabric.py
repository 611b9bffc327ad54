"""A netplan change with a way back: tried from /run, kept only after a new connection confirms.

try SECONDS < {"files": {name: text}, "shadow": [name], "delete_links": [name],
               "created_links": [name], "devices": [name]}
    checks the change with `netplan generate` in a scratch root, keeps the live state of "devices"
    in the journal, writes into /run/netplan (a power cut boots the old network), then applies it
    from a unit of its own, so that a dead SSH link does not stop it half way. Unconfirmed after
    SECONDS it is reverted.
status    trying | applied | reverted | failed, with what netplan said
confirm   moves the files to /etc/netplan (originals journalled) and ends the timer
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

import journal
import network
from run import run

STATE = "/run/spark-converge/fabric"
ETC, TRIAL = "/etc/netplan", "/run/netplan"
EMPTY = "network:\n  version: 2\n"
UNIT = "spark-converge-fabric"
REVERT_S = 30  # a `netplan apply` took 28 s in the lab under load


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


def check(plan: dict[str, Any]) -> str | None:
    """What `netplan generate` says against the merged result, None when it is content."""
    with tempfile.TemporaryDirectory() as root:
        if os.path.isdir(ETC):
            shutil.copytree(ETC, root + ETC)
        else:
            os.makedirs(root + ETC)
        for name, text in trial_texts(plan).items():
            path = f"{root}{ETC}/{name}"
            if os.path.exists(path):
                os.unlink(path)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(text)
        code, _out, err = run(["netplan", "generate", "--root-dir", root])
    return None if code == 0 else (err.strip() or f"netplan generate: exit status {code}")


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


def start(seconds: float) -> dict[str, Any]:
    plan = json.load(sys.stdin)
    refusal = earlier_trial(seconds) or check(plan)
    if refusal:
        return {"ok": False, "message": refusal}
    for name, was in network.live(plan["devices"]).items():
        journal.setting(f"link.{name}", json.dumps(was), "")
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
    program = os.path.dirname(os.path.abspath(__file__))
    code, _out, err = run(
        ["systemd-run", "--collect", f"--unit={UNIT}"]
        + [sys.executable, "-I", program, "fabric", "apply", str(seconds)]
    )
    if code:
        remove_trial(plan)
        say("failed", err.strip())
        return {"ok": False, "message": err.strip()}
    return {}


def load_plan() -> dict[str, Any]:
    with open(f"{STATE}/plan") as file:
        plan: dict[str, Any] = json.load(file)
    return plan


def manager_owned(devices: list[str]) -> list[str]:
    """Those of the devices that NetworkManager manages at this moment."""
    owned = []
    for device in devices:
        code, out, _err = run(["nmcli", "-g", "GENERAL.NM-MANAGED", "device", "show", device])
        if code == 0 and out.strip() == "yes":
            owned.append(device)
    return owned


def manager_hands(devices: list[str], managed: str) -> None:
    """Tell NetworkManager to take its hands off the devices, or to take them again.

    netplan's udev rules keep it away after the next boot; a device that it is bringing up by
    itself ("Wired connection 1") it keeps until told, and minutes later tears it out of the bond.
    """
    for device in devices:
        run(["nmcli", "device", "set", device, "managed", managed])


def apply(seconds: float) -> dict[str, Any]:
    """Runs inside the unit: apply, wait for the confirmation, else go back."""
    plan = load_plan()
    plan["manager_owned"] = manager_owned(plan["devices"])
    with open(f"{STATE}/plan", "w") as file:
        json.dump(plan, file)
    manager_hands(plan["manager_owned"], "no")
    delete_links(plan)
    deadline = time.monotonic() + seconds
    code, out, err = run(["netplan", "apply"], timeout_s=seconds)
    if code:
        return revert(plan, "failed", (err or out).strip() or f"netplan apply: exit status {code}")
    say("applied")
    while time.monotonic() < deadline:
        if os.path.exists(f"{STATE}/confirmed"):
            return {}
        time.sleep(0.3)
    return revert(plan, "reverted", f"no confirmation within {seconds:.0f} s")


def links_of(plan: dict[str, Any]) -> list[str]:
    """Virtual links that the trial created and that must go with it."""
    return [n for n in plan.get("created_links", []) if os.path.exists(f"/sys/class/net/{n}")]


def revert(plan: dict[str, Any], phase: str, message: str) -> dict[str, Any]:
    remove_trial(plan)
    for name in links_of(plan):
        run(["ip", "link", "delete", name])
    manager_hands(plan.get("manager_owned", []), "yes")
    code, _out, err = run(["netplan", "apply"], timeout_s=180)
    say(phase, message + (f"; going back: {err.strip()}" if code else ""))
    return {"ok": False, "message": message}


def confirm() -> dict[str, Any]:
    plan = load_plan()
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
    if argv[0] == "apply":
        return apply(float(argv[1]))
    if argv[0] == "confirm":
        return confirm()
    return status()
