"""Desktop units of users: a mask in the user's own folder, by which no session starts them.

section: of people with linger or a manager that runs, those of the asked units that are installed.

down {"units": [{"user", "name", "active"}]}   masks and stops them; undo takes the masks away and
    starts those that ran, if their user's manager still runs
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from typing import Any

from run import homes, journal
from run.command import Failed, run
from run.verdicts import Entry, subject, verdict

from systemd import scopes

MASK = "/dev/null"


def own_path(user: str, name: str) -> str:
    home = pwd.getpwnam(user).pw_dir
    return f"{homes.expanded(scopes.OWN_USER_FOLDERS[0], home)}/{name}"


def is_mask(path: str) -> bool:
    return os.path.islink(path) and os.readlink(path) == MASK


def people() -> Iterator[pwd.struct_passwd]:
    """Those whose user units run now or at the next boot."""
    for person in pwd.getpwall():
        linger = os.path.exists(f"{scopes.LINGER}/{person.pw_name}")
        if linger or scopes.manager(person.pw_name, person.pw_uid):
            yield person


def installed(home: str, name: str) -> bool:
    own = [homes.expanded(folder, home) for folder in scopes.OWN_USER_FOLDERS]
    return any(os.path.lexists(f"{folder}/{name}") for folder in (*own, *scopes.USER_FOLDERS))


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"units": [{"user", "name", "masked", "active"}]}"""
    found = []
    for person in people():
        names = [n for n in ask.get("user_units", ()) if installed(person.pw_dir, n)]
        shown = scopes.shown(scopes.manager(person.pw_name, person.pw_uid), names)
        for name in names:
            paths = (own_path(person.pw_name, name), f"{scopes.USER_FOLDERS[0]}/{name}")
            active = shown.get(name, {}).get("ActiveState", "inactive")
            masked = any(map(is_mask, paths))
            found.append({"user": person.pw_name, "name": name, "masked": masked, "active": active})
    return {"units": found}


def tell(user: str, *words: str) -> None:
    """Say something to a user's manager if it runs; raises Failed."""
    systemctl = scopes.manager(user, pwd.getpwnam(user).pw_uid)
    if systemctl is None:
        return
    code, _out, err = run([*systemctl, *words], timeout_s=120)
    if code:
        raise Failed(f"{user}: {err.strip() or f'systemctl --user {words[0]}: status {code}'}")


def mask(user: str, name: str) -> None:
    path, person = own_path(user, name), pwd.getpwnam(user)
    if not os.path.realpath(os.path.dirname(path)).startswith(
        os.path.realpath(person.pw_dir) + "/"
    ):
        raise Failed(f"{path} leads out of {person.pw_dir}: not written")
    owner = {"uid": person.pw_uid, "gid": person.pw_gid}
    # 0o777: what every symbolic link has
    then = {"existed": True, "mode": 0o777, **owner, "link": MASK}
    journal.record(path, journal.content(path), then)
    journal.make_folder(os.path.dirname(path), 0o755)
    journal.write_link(path, MASK, (person.pw_uid, person.pw_gid))


def down(todo: list[dict[str, str]]) -> dict[str, Any]:
    for one in todo:
        user, name = one["user"], one["name"]
        journal.setting(f"userunit.{user} {name}", one["active"], "")
        mask(user, name)
    for user in dict.fromkeys(one["user"] for one in todo):
        tell(user, "daemon-reload")
        tell(user, "stop", "--", *(one["name"] for one in todo if one["user"] == user))
    return {}


def called(entry: Entry) -> str:
    user, name = subject(entry).split(" ")
    return f"unit {name} of {user}"


def look(entry: Entry) -> dict[str, Any]:
    """Only what ran has to run again; the mask is a file entry of its own."""
    user, name = subject(entry).split(" ")
    try:
        systemctl = scopes.manager(user, pwd.getpwnam(user).pw_uid)
    except KeyError:
        return verdict("gone", "there is no such user any more")
    if entry["value"] != "active" or systemctl is None:  # it starts with the user's next session
        return verdict("same")
    now = scopes.shown(systemctl, [name]).get(name, {}).get("ActiveState")
    return verdict("same" if now == "active" else "restore")


def give(entry: Entry) -> None:
    user, name = subject(entry).split(" ")
    tell(user, "daemon-reload")
    tell(user, "start", "--", name)


def main(argv: list[str]) -> dict[str, Any]:
    action, word = argv
    if action != "down":
        raise ValueError(f"unknown action {action}")
    with journal.alone():
        return down(json.loads(word)["units"])
