"""Desktop units of users: found, masked in their own folder, given back."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from facts.state import state_of
from inventory.host_settings import shipped
from operations.run.findings import Look
from operations.systemd.userunits import assess, left
from tests.plan.made_pair import cluster
from tests.unit.on_host import module, tree

userunits, journal = module("systemd.userunits"), module("run.journal")
holds, scopes = module("watchdogs.holds"), module("systemd.scopes")
restore, kinds = module("undo.restore"), module("undo.kinds")
NAME = "localsearch-3.service"


def one(user: str, masked: bool, active: str) -> dict[str, Any]:
    return {"user": user, "name": NAME, "masked": masked, "active": active}


def test_a_unit_is_down_only_when_masked_and_asleep_for_everybody() -> None:
    found = state_of(
        {
            "userunits": {
                "units": [
                    one("a", True, "inactive"),
                    one("b", False, "inactive"),
                    one("c", True, "active"),
                ]
            }
        }
    )
    assert [u.user for u in left(found.userunits)] == ["b", "c"]  # type: ignore[arg-type]
    settings = shipped().model_copy(update={"user_units_down": (NAME, "other.service")})
    item, absent = assess(Look(cluster(), 0, (found,), None, (), settings))
    assert (item.verdict, item.found) == ("drift", "inactive for b; active, masked for c")
    assert (absent.verdict, absent.found) == ("ok", "absent")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with linger whose manager does not run, and a unit installed for all users."""
    home = tmp_path / "home"
    home.mkdir()
    me = pwd.getpwuid(os.getuid())
    person = pwd.struct_passwd((*me[:5], str(home), *me[6:]))
    monkeypatch.setattr(pwd, "getpwall", lambda: [person])
    monkeypatch.setattr(pwd, "getpwnam", lambda _: person)
    linger, shipped = tmp_path / "linger", tmp_path / "user"
    for folder in (linger, shipped):
        folder.mkdir()
    (linger / person.pw_name).touch()
    (shipped / NAME).write_text("[Service]\nExecStart=/bin/true\n")
    monkeypatch.setattr(scopes, "LINGER", str(linger))
    monkeypatch.setattr(scopes, "USER_FOLDERS", (str(tmp_path / "etc"), str(shipped)))
    monkeypatch.setattr(scopes, "manager", lambda *_: None)
    monkeypatch.setattr(holds, "RECORD", str(tmp_path / "held.json"))
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "lib" / "journal"))
    return home


def asked() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = userunits.section({"user_units": [NAME, "no.service"]})["units"]
    return found


def test_an_installed_unit_is_masked_for_its_user_and_given_back(home: Path) -> None:
    (unit,) = asked()
    assert (unit["name"], unit["masked"]) == (NAME, False)
    userunits.down([unit])
    mask = home / ".config" / "systemd" / "user" / NAME
    assert os.readlink(mask) == "/dev/null"  # noqa: PTH115
    assert [u["masked"] for u in asked()] == [True]
    assert restore.undo(frozenset())["ok"]
    assert list(home.iterdir()) == [], "the folders that were made for it go too"


def test_a_users_own_unit_file_comes_back_with_its_bytes(home: Path) -> None:
    own = home / ".config" / "systemd" / "user" / NAME
    own.parent.mkdir(parents=True)
    own.write_text("[Service]\nExecStart=/bin/mine\n")
    own.chmod(0o600)
    before = tree(home)
    userunits.down(asked())
    assert restore.undo(frozenset())["ok"]
    assert tree(home) == before


def test_a_folder_that_leads_out_of_the_home_is_not_written_to(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (home / ".config").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(module("run.command").Failed, match="leads out of"):
        userunits.down(asked())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nobody_without_a_manager_or_linger_is_looked_at(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "LINGER", str(tmp_path / "none"))
    assert asked() == []


def test_a_unit_that_does_not_start_keeps_no_other_down(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, told = tmp_path / "systemctl", tmp_path / "told"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {told}\n'
        'case $* in "start -- a.service") echo "it needs a screen" >&2; exit 1;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(scopes, "manager", lambda *_: [str(program)])
    ran = [
        {"kind": "settings", "name": f"userunit.milo {name}.service", "value": "active"}
        for name in ("a", "b")
    ]
    looked = [(e, {"name": userunits.called(e), "verdict": "restore"}) for e in ran]
    failures = restore.give_back(looked, [kinds.of(ran[0])])
    assert failures == {"unit a.service of milo": "milo: it needs a screen"}
    assert "start -- b.service" in told.read_text()
