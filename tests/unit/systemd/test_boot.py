"""What counts as booting into the wanted target, and what wins over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from facts.systemd.boot import Boot, parse
from operations.systemd.boot import forced, seen, settled
from tests.unit.on_host import module

WANTED = "multi-user.target"


def boot(**changes: Any) -> Boot:
    found: dict[str, Any] = {
        "default_target": WANTED,
        "fault": None,
        "override": None,
        "override_from": [],
        "boot_id": "b",
        "machine": "aarch64",
        "kernel": "6.14",
    }
    return parse(found | changes)


def test_the_right_target_by_a_sound_link_is_settled() -> None:
    assert settled(boot(), WANTED)
    assert forced(boot(), WANTED) is None


def test_b11_a_right_name_behind_a_faulty_link_is_not_settled() -> None:
    found = boot(fault="a link to /mnt/multi-user.target, outside of systemd's folders")
    assert not settled(found, WANTED)
    assert seen(found).startswith("multi-user.target (a link to /mnt")
    assert seen(boot(default_target="", fault="x")) == "nothing (x)"


@pytest.mark.parametrize("words", ["systemd.unit=graphical.target", "5", "3 single", "emergency"])
def test_b11_a_kernel_command_line_that_wins_is_said_with_its_word_and_file(words: str) -> None:
    found = boot(override=words, override_from=["/etc/default/grub.d/kiosk.cfg"])
    told = forced(found, WANTED)
    assert told == f"the kernel command line has {words}, set in /etc/default/grub.d/kiosk.cfg"
    assert settled(found, WANTED), "the default target itself needs no change"


@pytest.mark.parametrize("words", ["3", "systemd.unit=multi-user.target", "1 3"])
def test_a_kernel_command_line_that_asks_for_the_same_is_no_fault(words: str) -> None:
    assert forced(boot(override=words), WANTED) is None


def test_the_files_of_grub_are_searched_for_the_word_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = module("systemd.boot")
    files = {
        "/etc/default/grub": 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="quiet loglevel=5"\n',
        str(tmp_path / "a.cfg"): '#GRUB_CMDLINE_LINUX="5"\n',
        str(tmp_path / "b.cfg"): 'GRUB_CMDLINE_LINUX_DEFAULT="quiet 5"\n',
    }
    for path in list(files)[1:]:
        Path(path).touch()
    monkeypatch.setattr(found, "read", files.get)
    monkeypatch.setattr(found.glob, "glob", lambda _: list(files)[1:])
    assert found.bootloader_files(["5"]) == [str(tmp_path / "b.cfg")]
    assert found.bootloader_files([]) == []
