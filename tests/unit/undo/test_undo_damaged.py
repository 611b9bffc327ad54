"""Entries of the journal that came to harm: named, nothing restored from them, the others are."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.on_host import module, tree

journal, sealed, links = module("run.journal"), module("run.sealed"), module("systemd.links")
restore = module("undo.restore")
OWNER = (os.getuid(), os.getgid())
NAMES = [f"{n}" for n in range(10)]


def dirty(disk: Path) -> dict[str, Any]:
    """Ten files of the owner's, all changed by us; how they were."""
    shutil.rmtree(journal.ROOT, ignore_errors=True)
    for name in NAMES:
        (disk / name).write_text(f"original {name}\n")
        (disk / name).chmod(0o644)
    was = tree(disk)
    for name in NAMES:
        journal.put(str(disk / name), 0o600, OWNER, f"ours {name}\n".encode())
    return was


def document(disk: Path, name: str) -> Path:
    return Path(journal.entry_path("files", str(disk / name)))


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Valid JSON of the right form, with another content: only the sum tells."""
    found = json.loads(path.read_text())
    change(found.get("entry", found))
    path.write_text(json.dumps(found))


def other_bytes(entry: dict[str, Any]) -> None:
    entry["b64"] = base64.b64encode(b"root::0:0::/root:/bin/sh\n").decode()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def linked(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def old(path: Path) -> None:
    """As the version before wrote it."""
    path.write_text(json.dumps(json.loads(path.read_text())["entry"], indent=1))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-20]),
    "cut at a line's end": lambda p: p.write_text("\n".join(p.read_text().split("\n")[:4])),
    "zeros of a lost block": lambda p: p.write_bytes(bytes(len(p.read_bytes()))),
    "not UTF-8": lambda p: p.write_bytes(b"\xff\xfe" + p.read_bytes()),
    "a list": lambda p: p.write_text("[]"),
    "a number": lambda p: p.write_text("7"),
    "null": lambda p: p.write_text("null"),
    "nothing in it": lambda p: p.write_text("{}"),
    "other bytes": lambda p: changed(p, other_bytes),
    "another path": lambda p: changed(p, lambda e: e.update(path="/etc/passwd")),
    "another mode": lambda p: changed(p, lambda e: e.update(mode=0o4777)),
    "another owner": lambda p: changed(p, lambda e: e.update(uid=e["uid"] + 1)),
    "absent instead": lambda p: changed(p, lambda e: e.update(existed=False)),
    "a word for a number": lambda p: changed(p, lambda e: e.update(mode="420")),
    "the sum lost": lambda p: p.write_text(
        json.dumps({"entry": json.loads(p.read_text())["entry"]})
    ),
    "the sum another": lambda p: p.write_text(p.read_text().replace('"sha256": "', '"sha256": "0')),
    "the sum no word": lambda p: p.write_text(
        json.dumps({**json.loads(p.read_text()), "sha256": None})
    ),
    "another entry's": lambda p: shutil.copy(next(q for q in p.parent.iterdir() if q != p), p),
    "without end": lambda p: p.write_text("[" * 200_000),
    "a folder": folder,
    "a dangling link": lambda p: linked(p, Path("/nonexistent")),
    "a link to a whole one": lambda p: linked(p, p.rename(p.with_suffix(".kept"))),
    "a pipe": pipe,
}
# The same in the form of the version before, which has no sum.
OLD_DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-20]),
    "base64 with a stray character": lambda p: changed(p, lambda e: e.update(b64="b3*JpZw==")),
    "base64 without its end": lambda p: changed(p, lambda e: e.update(b64=e["b64"][:-1])),
    "base64 that is none": lambda p: changed(p, lambda e: e.update(b64="b3JpZ4==")),
    "bytes and a link": lambda p: changed(p, lambda e: e.update(link="/etc/shadow")),
    "neither": lambda p: changed(p, lambda e: e.pop("b64")),
    "another path": lambda p: changed(p, lambda e: e.update(path="/etc/passwd")),
    "a mode that is none": lambda p: changed(p, lambda e: e.update(mode=0o100644)),
    "a truth for a number": lambda p: changed(p, lambda e: e.update(uid=True)),
    "an unknown word": lambda p: changed(p, lambda e: e.update(sha257="0")),
    "edits that are none": lambda p: changed(p, lambda e: e.update(edits=[1])),
    "written that is none": lambda p: changed(p, lambda e: e.update(written="%")),
}


def only_the_damaged_is_left(disk: Path, was: dict[str, Any], path: Path) -> None:
    plan = {v["name"]: v["verdict"] for _, v in restore.look(restore.everything())}
    assert plan == {str(path): "unread", **{str(disk / n): "restore" for n in NAMES if n != "3"}}
    answer = restore.undo(frozenset())
    (left,) = answer["left"]
    assert (answer["ok"], left["name"]) == (False, str(path))
    assert left["why"].startswith(f"{path} is damaged"), left
    assert answer["restored"] == [str(disk / name) for name in NAMES if name != "3"]
    now = tree(disk)
    assert now.pop("3")[3] == b"ours 3\n"
    assert now == {name: one for name, one in was.items() if name != "3"}
    assert os.path.lexists(path), "it is left where it was"
    again = restore.undo(frozenset())
    assert (again["left"], again["restored"]) == ([left], [])


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE)
def test_of_ten_entries_one_damaged_nine_are_given_back(
    disk: Path, harm: Callable[[Path], object]
) -> None:
    was, path = dirty(disk), document(disk, "3")
    harm(path)
    only_the_damaged_is_left(disk, was, path)


@pytest.mark.parametrize("harm", OLD_DAMAGE.values(), ids=OLD_DAMAGE)
def test_an_entry_of_the_version_before_that_has_not_its_form_is_damaged(
    disk: Path, harm: Callable[[Path], object]
) -> None:
    was, path = dirty(disk), document(disk, "3")
    for name in NAMES:
        old(document(disk, name))
    harm(path)
    only_the_damaged_is_left(disk, was, path)


def test_entries_of_the_version_before_are_given_back_and_sealed_when_written_again(
    disk: Path,
) -> None:
    was = dirty(disk)
    journal.setting("governor.policy0", "performance", "schedutil")
    for path in Path(journal.ROOT).rglob("*.json"):
        old(path)
    journal.put(str(disk / "3"), 0o600, OWNER, b"ours again\n")
    assert json.loads(document(disk, "3").read_text()).keys() == {"sha256", "entry"}
    assert json.loads(document(disk, "4").read_text())["path"] == str(disk / "4")
    answer = restore.undo(frozenset())
    assert answer["ok"], answer
    assert tree(disk) == was


def test_a_damaged_setting_is_named_and_the_files_are_given_back(disk: Path) -> None:
    was = dirty(disk)
    journal.setting("sysctl.vm.swappiness", "60", "0")
    path = Path(journal.entry_path("settings", "sysctl.vm.swappiness"))
    changed(path, lambda entry: entry.update(value="100"))
    answer = restore.undo(frozenset())
    assert [one["name"] for one in answer["left"]] == [str(path)]
    assert tree(disk) == was


@pytest.mark.parametrize("kind", ["files", "settings"])
def test_a_folder_of_entries_that_is_none_is_named(disk: Path, kind: str) -> None:
    dirty(disk)
    shutil.rmtree(f"{journal.ROOT}/{kind}", ignore_errors=True)
    Path(journal.ROOT, kind).symlink_to("/nonexistent")
    (left,) = restore.undo(frozenset())["left"]
    assert left["name"] == f"{journal.ROOT}/{kind}"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"units": 7, "links": {}}', '{"sha256": "0", "entry": {}}',
     '{"units": [], "links": {"/etc/systemd/system/a.service": {"existed": true, "mode": 511}}}'],
)  # fmt: skip
def test_a_damaged_record_of_a_cut_off_change_is_named_and_the_rest_is_given_back(
    disk: Path, text: str
) -> None:
    was = dirty(disk)
    path = Path(links.pending_path())
    path.write_text(text)
    for _ in range(2):
        answer = restore.undo(frozenset())
        assert [one["name"] for one in answer["left"]] == [str(path)]
        assert tree(disk) == was
    assert path.read_text() == text
    with pytest.raises(ValueError, match=r"pending\.json is damaged"), links.watched(["a.service"]):
        pytest.fail("nothing is changed while it is not known what was")


def test_a_setting_of_a_later_version_is_named_and_stays(disk: Path) -> None:
    was = dirty(disk)
    journal.setting("later.thing", "a", "b")
    answer = restore.undo(frozenset())
    assert answer["left"] == [
        {"name": "later.thing", "why": "this version does not know such a thing"}
    ]
    assert tree(disk) == was


@given(
    name=st.sampled_from(NAMES),
    at=st.floats(0, 1),
    put=st.binary(max_size=6),
    gone=st.integers(0, 400),
    before=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_bytes_change_no_wrong_byte_is_restored(
    disk: Path, name: str, at: float, put: bytes, gone: int, before: bool
) -> None:
    """before: an entry of the version before, whose form alone can tell; its bytes are not then."""
    was, path = dirty(disk), document(disk, name)
    if before:
        old(path)
    whole = path.read_bytes()
    start = int(at * len(whole))
    path.write_bytes(whole[:start] + put + whole[start + gone :])
    answer = restore.undo(frozenset())
    now = tree(disk)
    assert {n: one for n, one in now.items() if n != name} == {
        n: one for n, one in was.items() if n != name
    }
    if not before:
        assert now[name] in (was[name], (now[name][0], *was[name][1:3], f"ours {name}\n".encode()))
        if now[name] != was[name]:
            assert [one["name"] for one in answer["left"]] == [str(path)]
