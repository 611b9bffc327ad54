"""Undo and the owner: what somebody edited since is left and named; held cron lines come back."""

from __future__ import annotations

import base64
import json
import os
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operations.watchdogs.crontab import hold, rearm
from tests.unit.on_host import module, tree

journal = module("run.journal")
restore = module("undo.restore")
OWNER = (os.getuid(), os.getgid())
WORD = "SPARK-HELD"
WATCHDOG = "* * * * * /usr/local/bin/ready.sh >> /var/log/ready.log 2>&1"
TABLE = f"# by hand\n\n{WATCHDOG}\n17 4 * * 0 /usr/bin/find /var/tmp -delete"  # no last newline


def put(path: Path, data: str, **words: Any) -> None:
    journal.put(str(path), 0o600, OWNER, data.encode("latin-1"), **words)


def plan(*force: str) -> dict[str, tuple[str, str]]:
    looked = restore.look(restore.everything(force))
    return {v["name"]: (v["verdict"], v["why"]) for _, v in looked}


def undo(*force: str) -> dict[str, Any]:
    answer: dict[str, Any] = restore.undo(frozenset(force))
    return answer


def edited(disk: Path, original: str, ours: str, edit: str) -> str:
    """The hint about a file that was changed by us and then by its owner."""
    file = disk / "a"
    file.write_text(original)
    file.chmod(0o600)
    put(file, ours)
    file.write_text(edit)
    verdict, why = plan()[str(file)]
    assert verdict == "edited"
    return why


def test_a_file_edited_since_is_left_and_the_rest_is_given_back(disk: Path) -> None:
    (disk / "a").write_text("original a")
    (disk / "b").write_text("original b")
    put(disk / "a", "ours a")
    put(disk / "b", "ours b")
    (disk / "a").write_text("the owner's")
    answer = undo()
    assert not answer["ok"]
    assert [one["name"] for one in answer["left"]] == [str(disk / "a")]
    assert answer["restored"] == [str(disk / "b")]
    assert (disk / "a").read_text() == "the owner's"
    assert (disk / "b").read_text() == "original b"


def test_what_was_left_is_still_in_the_journal_and_can_be_forced(disk: Path) -> None:
    file = disk / "a"
    file.write_text("original")
    file.chmod(0o640)
    before = tree(disk)
    put(file, "ours")
    file.write_text("the owner's")
    assert not undo()["ok"]
    assert not undo()["ok"], "a second undo says the same"
    answer = undo(str(file))
    assert answer["ok"]
    assert tree(disk) == before
    (entry,) = (json.loads(p.read_text())["entry"] for p in Path(answer["aside"]).rglob("*.json"))
    assert [base64.b64decode(edit["b64"]) for edit in entry["edits"]] == [b"the owner's"]


def test_the_hint_names_lines_and_never_their_text(disk: Path) -> None:
    why = edited(disk, "x\n", "one\ntwo\nthree\n", "one\nsecret: 2\nthree\nmore: secret\n")
    assert why.startswith("edited since: line 2, 4;")
    assert "secret" not in why
    assert Path(journal.ROOT, "files", why.rsplit(" ", 1)[1]).is_file()


def test_other_edits_are_told_apart(disk: Path) -> None:
    assert edited(disk, "x", "one\n", "one").startswith("its mode, owner or last line's end")
    (disk / "a").unlink()
    assert plan()[str(disk / "a")][1].startswith("it was removed since")


def test_another_mode_is_an_edit_too(disk: Path) -> None:
    (disk / "a").write_text("x")
    put(disk / "a", "ours")
    (disk / "a").chmod(0o644)
    assert plan()[str(disk / "a")][0] == "edited"


def test_an_owner_who_put_the_original_back_is_not_asked_about_it(disk: Path) -> None:
    (disk / "a").write_text("original")
    before = tree(disk)
    put(disk / "a", "ours")
    (disk / "a").write_text("original")
    (disk / "a").chmod(0o644)
    answer = undo()
    assert (answer["ok"], answer["restored"]) == (True, [])
    assert tree(disk) == before


def test_an_edit_that_a_later_run_wrote_over_is_kept_in_the_journal(disk: Path) -> None:
    (disk / "a").write_text("original")
    put(disk / "a", "ours 1")
    (disk / "a").write_text("the owner's")
    put(disk / "a", "ours 2")
    put(disk / "a", "ours 3")
    entry = journal.load("files", str(disk / "a"))
    assert [base64.b64decode(edit["b64"]) for edit in entry["edits"]] == [b"the owner's"]
    assert undo()["ok"]
    assert (disk / "a").read_text() == "original"


def test_a_plan_changes_nothing(disk: Path) -> None:
    (disk / "a").write_text("original")
    put(disk / "a", "ours")
    before = tree(disk.parent)
    assert plan() == {str(disk / "a"): ("restore", "")}
    assert tree(disk.parent) == before


# Crontabs


def held(text: str) -> str:
    lines = enumerate(text.split("\n"), start=1)
    armed = [n for n, line in lines if "ready.sh" in line and line[:1] != "#"]
    return hold(text, WORD, date(2026, 8, 26), armed)


def cron(disk: Path, text: str = TABLE) -> Path:
    file = disk / "root"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    return file


def test_a_held_crontab_comes_back_byte_for_byte(disk: Path) -> None:
    file = cron(disk)
    before = tree(disk)
    put(file, held(TABLE), tag=WORD)
    assert undo()["ok"]
    assert tree(disk) == before


def test_an_edited_crontab_keeps_the_edit_and_loses_our_tag(disk: Path) -> None:
    file = cron(disk)
    put(file, held(TABLE), tag=WORD)
    file.write_text(held(TABLE) + "\n@daily /usr/bin/backup\n")
    answer = undo()
    assert answer["ok"]
    assert file.read_text() == TABLE + "\n@daily /usr/bin/backup\n"


def test_a_held_line_that_the_owner_changed_is_armed_as_he_wrote_it(disk: Path) -> None:
    file = cron(disk)
    put(file, held(TABLE), tag=WORD)
    file.write_text(held(TABLE).replace(" * * * * * /usr", " */5 * * * * /usr"))
    assert undo()["ok"]
    assert file.read_text() == TABLE.replace("* * * * * /usr", "*/5 * * * * /usr")


def test_an_edit_between_two_holds_is_kept(disk: Path) -> None:
    file = cron(disk)
    put(file, held(TABLE), tag=WORD)
    later = held(TABLE) + "\n* * * * * /usr/local/bin/second-ready.sh\n"
    file.write_text(later)
    put(file, held(later), tag=WORD)
    assert undo()["ok"]
    assert file.read_text() == TABLE + "\n* * * * * /usr/local/bin/second-ready.sh\n"


def test_a_line_that_was_held_before_our_time_stays_held(disk: Path) -> None:
    old = f"#{WORD}-20250101 {WATCHDOG}\n{WATCHDOG}\n"
    file = cron(disk, old)
    put(file, held(old), tag=WORD)
    file.write_text(file.read_text() + "# a note\n")
    assert undo()["ok"]
    assert file.read_text() == old + "# a note\n"


def test_a_crontab_that_was_given_back_before_is_left_as_it_is(disk: Path) -> None:
    file = cron(disk)
    put(file, held(TABLE), tag=WORD)
    put(file, rearm(held(TABLE), WORD), tag=WORD)
    file.write_text(TABLE + "\n@daily /usr/bin/backup\n")
    answer = undo()
    assert (answer["ok"], answer["restored"]) == (True, [])
    assert file.read_text() == TABLE + "\n@daily /usr/bin/backup\n"


def test_a_forced_crontab_is_the_original_again(disk: Path) -> None:
    file = cron(disk)
    put(file, held(TABLE), tag=WORD)
    file.write_text("nothing of it left\n")
    assert undo(str(file))["ok"]
    assert file.read_text() == TABLE


lines = st.text(st.characters(max_codepoint=255, blacklist_characters="\n"), max_size=30)
tables = st.lists(st.one_of(lines, st.just(WATCHDOG))).map("\n".join)


@given(before=tables, extra=st.lists(lines, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_table_comes_back_with_whatever_the_owner_added(
    disk: Path, before: str, extra: list[str]
) -> None:
    file = cron(disk, before)
    put(file, held(before), tag=WORD)
    file.write_bytes("\n".join([held(before), *extra]).encode("latin-1"))
    assert undo()["ok"]
    assert file.read_bytes() == "\n".join([before, *extra]).encode("latin-1")
