"""Root's writes in a home whose owner turns a folder into a link at the worst moment."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import just_before, module

homes, journal, files = map(module, ("run.homes", "run.journal", "undo.files"))
holds, scopes = map(module, ("watchdogs.holds", "systemd.scopes"))
userunits = module("systemd.userunits")
Failed = module("run.command").Failed
# Where root runs the tests the home is somebody else's.
OWNER = (os.getuid() or 65534, os.getgid() or 65534)
SECRET = base64.b64encode(b"of the system").decode()


def home_in(top: Path) -> Path:
    """A home, and beside it a folder of the system with the same names below it."""
    for folder in ("home/.config/systemd/user", "system/user/a.service.d"):
        (top / folder).mkdir(parents=True)
    (top / "home/.config/systemd/user/a.service").write_text("ours")
    (top / "system/user/a.service").write_bytes(base64.b64decode(SECRET))
    if not os.getuid():
        for path in (top / "home", *(top / "home").rglob("*")):
            os.chown(path, *OWNER)
    return top / "home"


def turn(home: Path) -> None:
    (home / ".config/systemd").rename(home / "moved")
    (home / ".config/systemd").symlink_to(home.parent / "system")


def seen(folder: Path) -> dict[str, tuple[int, bytes]]:
    """{path: (owner, bytes)} of all below."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_uid,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def entry(path: str, **was: Any) -> dict[str, Any]:
    """As of a file that a run has changed, in a folder that it made."""
    mark = journal.fingerprint(journal.content(path))
    rest = {"ours": [mark], "edits": [], "written": None, "tag": None}
    return {"path": path, **was, **rest, "made": [str(Path(path).parent)]}


def mask(path: str) -> None:
    userunits.mask("milo", Path(path).name)


def hold(path: str) -> None:
    unit = {"scope": "milo", "uid": 1, "name": Path(path).name, "active": "inactive"}
    more = {"file_state": "", "stop": False, "restart": False}
    holds.put({"units": [unit | more], "scripts": []})


def let_go(path: str) -> None:
    hold(path)
    holds.rearm()


def put(path: str) -> None:
    journal.put(path, 0o644, OWNER, b"x")


def give(path: str, **content: Any) -> None:
    owner = {"existed": True, "mode": 0o644, "uid": OWNER[0], "gid": OWNER[1]}
    files.give(entry(path, **owner, **content))


def give_bytes(path: str) -> None:
    give(path, b64=base64.b64encode(b"x").decode(), xattrs={})


def give_link(path: str) -> None:
    give(path, link="/dev/null")


def give_nothing(path: str) -> None:
    files.give(entry(path, existed=False))


ACTS = [mask, hold, let_go, put, give_bytes, give_link, give_nothing]


@pytest.mark.parametrize("act", ACTS)
def test_a_folder_that_turns_into_a_link_under_way_leads_root_nowhere(
    disk: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]
) -> None:
    """Before each single call that could follow it."""
    monkeypatch.setattr(scopes, "manager", lambda *_: None)
    for number in itertools.count():
        home = home_in(disk / str(number))
        person = pwd.struct_passwd(("milo", "x", *OWNER, "", str(home), "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwnam", lambda _, person=person: person)
        monkeypatch.setattr(holds, "RECORD", str(home.parent / "held.json"))
        before = seen(home.parent / "system")
        with monkeypatch.context() as patch, contextlib.suppress(Failed, ValueError, OSError):
            just_before(patch, number, functools.partial(turn, home))
            act(str(home / ".config/systemd/user/a.service"))
        if not (home / "moved").exists():
            break
        assert seen(home.parent / "system") == before, f"at call {number}"
        kept = [path.read_text() for path in Path(journal.ROOT).rglob("*.json")]
        assert not any(SECRET in text for text in kept), f"at call {number}"
    assert number > 3


def test_a_home_that_was_turned_before_is_refused_by_name(disk: Path) -> None:
    home = home_in(disk)
    turn(home)
    path = f"{home}/.config/systemd/user/a.service"
    if homes.top_of(path) != str(home):
        pytest.skip("the folder of the tests is a home itself for whoever is not root")
    with pytest.raises(Failed, match=f"{path} leads out of {home}: not touched"):
        put(path)


def test_links_within_a_home_are_its_owners_way_of_keeping_it(disk: Path) -> None:
    home = home_in(disk)
    (home / ".config/systemd").rename(home / "dotfiles")
    (home / ".config/systemd").symlink_to("../dotfiles")
    put(f"{home}/.config/systemd/user/more/b.service")
    made = home / "dotfiles/user/more"
    assert (made / "b.service").read_bytes() == b"x"
    assert made.stat().st_uid == OWNER[0], "like all in that home"


@pytest.mark.skipif(bool(os.getuid()), reason="who is not root has only one owner's folders")
def test_a_home_on_another_disk_counts_where_the_same_person_owns_it(disk: Path) -> None:
    home, far = home_in(disk), disk / "far" / "milo"
    (home / ".config").rename(home / "before")
    (far / "systemd" / "user").mkdir(parents=True)
    (home / ".config").symlink_to(far)
    path = f"{home}/.config/systemd/user/b.service"
    with pytest.raises(Failed, match="leads out of"):
        put(path)
    os.chown(far, *OWNER)
    put(path)
    assert (far / "systemd/user/b.service").read_bytes() == b"x"


@pytest.mark.skipif(bool(os.getuid()), reason="who is not root has only one owner's folders")
def test_a_link_that_somebody_made_where_all_may_is_not_roots(disk: Path) -> None:
    home_in(disk)
    (disk / "link").symlink_to("system")
    put(f"{disk}/link/user/b.service")
    os.lchown(disk / "link", *OWNER)
    with pytest.raises(Failed, match=f"leads out of {disk}/link: not touched"):
        put(f"{disk}/link/user/c.service")


def test_a_path_of_root_alone_is_left_as_it_is() -> None:
    with homes.pinned("/etc/sysctl.d/a.conf") as there:
        assert there == "/etc/sysctl.d/a.conf"
