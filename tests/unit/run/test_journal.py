"""The write-ahead journal: originals first, the first one wins, nothing half written."""

from __future__ import annotations

import base64
import fcntl
import io
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.on_host import Cut, cut_at, module, tree

journal = module("run.journal")
restore = module("undo.restore")
OWNER = (os.getuid(), os.getgid())


def put(path: Path, data: bytes, mode: int = 0o644, **words: Any) -> None:
    journal.put(str(path), mode, OWNER, data, **words)


def entry(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = journal.load("files", str(path))
    return found


def undo(*force: str) -> dict[str, Any]:
    answer: dict[str, Any] = restore.undo(frozenset(force))
    return answer


def test_the_first_original_wins_and_the_last_bytes_are_known_as_ours(disk: Path) -> None:
    file = disk / "a"
    file.write_bytes(b"one\n")
    file.chmod(0o640)
    put(file, b"two\n", 0o600)
    put(file, b"three\n", 0o644)
    kept = entry(file)
    assert journal.fingerprint(kept).startswith("file:640:")
    assert len(kept["ours"]) == 2
    assert journal.fingerprint(journal.content(str(file))) == kept["ours"][-1]
    assert kept["edits"] == []


def test_the_journal_is_for_root_alone(disk: Path) -> None:
    put(disk / "a", b"secret")
    root = Path(journal.ROOT)
    assert root.stat().st_mode & 0o777 == 0o700
    files = [path for path in root.rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files away")
def test_owner_and_special_mode_bits_come_back(disk: Path) -> None:
    file = disk / "a"
    file.write_bytes(b"x")
    os.chown(file, 12, 34)
    file.chmod(0o4755)
    before = tree(disk)
    put(file, b"y", 0o600)
    assert tree(disk) != before
    assert undo()["ok"]
    assert tree(disk) == before


def test_extended_attributes_come_back(disk: Path) -> None:
    file = disk / "a"
    file.write_bytes(b"x")
    try:
        os.setxattr(file, "user.note", b"of the owner")
    except OSError:
        pytest.skip("this file system has no user attributes")
    put(file, b"y")
    assert undo()["ok"]
    assert os.getxattr(file, "user.note") == b"of the owner"


def test_a_link_that_was_replaced_is_a_link_again(disk: Path) -> None:
    link = disk / "a"
    link.symlink_to("somewhere/else")
    put(link, b"file now")
    assert not link.is_symlink()
    assert undo()["ok"]
    assert os.readlink(link) == "somewhere/else"  # noqa: PTH115 - the text itself


def test_what_was_absent_is_removed_and_so_are_the_folders_that_were_made_for_it(
    disk: Path,
) -> None:
    put(disk / "new" / "er" / "a", b"x")
    answer = undo()
    assert answer["restored"] == [str(disk / "new" / "er" / "a")]
    assert list(disk.iterdir()) == []


def test_a_folder_that_was_there_or_is_used_by_now_stays(disk: Path) -> None:
    (disk / "old").mkdir()
    put(disk / "old" / "a", b"x")
    put(disk / "new" / "a", b"x")
    (disk / "new" / "mine").touch()
    assert undo()["ok"]
    assert sorted(p.name for p in disk.rglob("*")) == ["mine", "new", "old"]


def test_a_removed_file_comes_back(disk: Path) -> None:
    (disk / "a").write_bytes(b"x")
    before = tree(disk)
    journal.remove(str(disk / "a"))
    assert tree(disk) == {}
    assert undo()["ok"]
    assert tree(disk) == before


def test_a_folder_is_no_file(disk: Path) -> None:
    with pytest.raises(OSError, match="neither a file nor a link"):
        put(disk, b"x")


contents = st.one_of(st.none(), st.tuples(st.binary(max_size=300), st.sampled_from([0o600, 0o644])))


@given(before=contents, writes=st.lists(contents, min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_file_comes_back_whatever_was_written(disk: Path, before: Any, writes: Any) -> None:
    file = disk / "any"
    file.unlink(missing_ok=True)
    if before:
        file.write_bytes(before[0])
        file.chmod(before[1])
    was = tree(disk)
    for one in writes:
        if one:
            put(file, *one)
        else:
            journal.remove(str(file))
    answer = undo()
    assert answer["ok"], answer
    assert tree(disk) == was
    assert restore.everything() == []


def test_a_write_is_on_the_disk_before_it_counts_and_its_name_after(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_at(monkeypatch, 10**6)
    journal.write(str(disk / "a"), b"x", 0o600)
    assert made == ["fsync", "replace", "fsync"]


def test_what_a_cut_off_write_left_is_replaced_not_written_into(disk: Path) -> None:
    left = Path(journal.new_path(str(disk / "a")))
    left.write_text("half")
    elsewhere = disk / "elsewhere"
    elsewhere.hardlink_to(left)
    journal.write(str(disk / "a"), b"x", 0o600)
    assert (disk / "a").read_bytes() == b"x"
    assert elsewhere.read_text() == "half"
    assert not left.exists()


# Interruptions


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CPU frequency policy."""
    file = tmp_path / "policy0" / "scaling_governor"
    file.parent.mkdir()
    file.write_text("performance\n")
    monkeypatch.setattr(module("clocks.cpufreq"), "POLICIES", str(tmp_path))
    return file


def dirty(disk: Path) -> dict[str, Any]:
    (disk / "a").write_bytes(b"original a")
    (disk / "b").write_bytes(b"original b")
    (disk / "link").symlink_to("target")
    return tree(disk)


def work(disk: Path, policy: Path) -> None:
    """Every kind of change to a file, and a setting."""
    put(disk / "a", b"ours 1")
    put(disk / "a", b"ours 2", 0o600)
    journal.remove(str(disk / "b"))
    put(disk / "folder" / "new", b"ours")
    journal.setting("governor.policy0", "performance", "schedutil")
    policy.write_text("schedutil\n")
    put(disk / "link", b"ours")


def interruptions(do: Callable[[], object]) -> Iterator[int]:
    """Let `do` die at its first call that reaches the disk, then the second, until it ends."""
    for number in itertools.count():
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, number)
            try:
                do()
            except Cut:
                pass
            else:
                assert number > 10
                return
        yield number


def test_changes_cut_off_at_any_point_are_undone(disk: Path, policy: Path) -> None:
    was = dirty(disk)
    for number in interruptions(lambda: work(disk, policy)):
        assert (disk / "a").read_bytes() in (b"original a", b"ours 1", b"ours 2")
        answer = undo() if restore.everything() else {"ok": True}
        assert answer["ok"], (number, answer)
        assert tree(disk) == was, number
        assert policy.read_text() == "performance\n"


def test_changes_cut_off_at_any_point_are_completed_by_a_second_run(
    disk: Path, policy: Path
) -> None:
    was = dirty(disk)
    work(disk, policy)
    done = tree(disk)
    assert undo()["ok"]
    for number in interruptions(lambda: work(disk, policy)):
        work(disk, policy)
        assert tree(disk) == done, number
        assert entry(disk / "a")["edits"] == []
        assert undo()["ok"]
        assert tree(disk) == was, number


def test_an_undo_cut_off_at_any_point_is_completed_by_a_second_one(
    disk: Path, policy: Path
) -> None:
    was = dirty(disk)
    work(disk, policy)
    for number in interruptions(undo):
        answer = undo() if restore.everything() else {"ok": True}
        assert answer["ok"], (number, answer)
        assert tree(disk) == was, number
        assert policy.read_text() == "performance\n"
        assert restore.everything() == []
        work(disk, policy)


def test_a_new_first_touch_begins_after_an_undo(disk: Path) -> None:
    (disk / "a").write_bytes(b"first")
    put(disk / "a", b"ours")
    first = undo()
    (disk / "a").write_bytes(b"second, by the owner")
    put(disk / "a", b"ours")
    second = undo()
    assert (disk / "a").read_bytes() == b"second, by the owner"
    assert first["aside"] != second["aside"]
    assert Path(first["aside"]).is_dir()


def test_a_damaged_entry_is_named(disk: Path) -> None:
    put(disk / "a", b"x")
    path = Path(journal.entry_path("files", str(disk / "a")))
    path.write_text("{")
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        put(disk / "a", b"y")
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        list(journal.entries())
    assert (disk / "a").read_bytes() == b"x"


@pytest.mark.parametrize("sent", ["", "b25l", "b25lCnR3"])
def test_input_whose_sender_was_cut_off_is_not_written(
    disk: Path, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    file = disk / "a"
    words = ["put", str(file), "644", *map(str, OWNER)]
    monkeypatch.setattr("sys.stdin", io.StringIO(sent))
    with pytest.raises(ValueError, match="cut short"):
        journal.main(words)
    assert not file.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{sent}\n"))
    journal.main(words)
    assert file.read_bytes() == base64.b64decode(sent)


def test_changes_wait_for_each_other_and_not_for_ever(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LOCK_S", 0.2)
    with journal.alone():
        put(disk / "a", b"one\n")  # the same process may
    other = os.open(Path(journal.ROOT).parent, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(journal.Failed, match="another spark-host"):
        put(disk / "a", b"two\n")
    os.close(other)
    put(disk / "a", b"three\n")
    assert (disk / "a").read_bytes() == b"three\n"
