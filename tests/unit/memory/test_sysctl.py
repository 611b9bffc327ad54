"""Kernel settings: on the host's own program, in a tree that stands for /proc/sys and /etc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from facts.memory.sysctl import Sysctl, parse
from facts.state import state_of
from operations.memory import sysctl as operation
from tests.plan.made_pair import file_of
from tests.unit.on_host import module

sysctls, restore = module("memory.sysctls"), module("undo.restore")
WANT = {"vm.swappiness": 0, "vm.no_such": 1}


@pytest.fixture
def host(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel with swappiness 60 and three numbers in tcp_rmem; no files."""
    for name, text in {"vm/swappiness": "60", "net/ipv4/tcp_rmem": "4096\t131072\t6291456"}.items():
        path = disk / "proc" / name
        path.parent.mkdir(parents=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(sysctls, "ROOT", str(disk / "proc"))
    folders = tuple(str(disk / name) for name in ("etc", "run", "usr"))
    monkeypatch.setattr(sysctls, "FOLDERS", folders)
    for folder in folders:
        Path(folder).mkdir()
    return disk


def read(*keys: str) -> Sysctl:
    return parse(sysctls.section({"sysctl": list(keys)}))


def put(want: dict[str, str]) -> None:
    sysctls.main(["set", json.dumps(want)])


def undo() -> dict[str, Any]:
    answer: dict[str, Any] = restore.undo(frozenset())
    return answer


def test_live_values_have_single_spaces_and_one_that_is_missing_is_none(host: Path) -> None:
    found = read("vm.swappiness", "net.ipv4.tcp_rmem", "vm.no_such")
    assert found.values == {
        "vm.swappiness": "60",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "vm.no_such": None,
    }
    assert found.boot == ()


def test_a_value_is_set_and_given_back(host: Path) -> None:
    put({"vm.swappiness": "0", "vm.no_such": "1"})
    assert (host / "proc" / "vm" / "swappiness").read_text() == "0\n"
    answer = undo()
    assert answer["ok"]
    assert answer["restored"] == ["sysctl vm.swappiness"]
    assert read("vm.swappiness").values == {"vm.swappiness": "60"}


def test_the_first_value_found_counts_when_set_twice(host: Path) -> None:
    put({"vm.swappiness": "10"})
    put({"vm.swappiness": "0"})
    assert undo()["ok"]
    assert read("vm.swappiness").values == {"vm.swappiness": "60"}


def test_a_value_that_somebody_set_since_is_left_and_named(host: Path) -> None:
    put({"vm.swappiness": "0"})
    (host / "proc" / "vm" / "swappiness").write_text("133\n")
    answer = undo()
    assert not answer["ok"]
    (left,) = answer["left"]
    assert left["why"] == "it is 133, set by somebody since; it was 60"
    assert read("vm.swappiness").values == {"vm.swappiness": "133"}


def test_a_kernel_that_lost_the_setting_is_a_note(host: Path) -> None:
    put({"vm.swappiness": "0"})
    (host / "proc" / "vm" / "swappiness").unlink()
    assert undo()["notes"] == ["sysctl vm.swappiness: this kernel has no such setting"]


def test_files_are_applied_in_the_order_of_their_names_and_hide_each_other(host: Path) -> None:
    (host / "usr" / "10-a.conf").write_text("vm.swappiness = 1\n")
    (host / "usr" / "50-b.conf").write_text("vm.swappiness = 2\n")
    (host / "etc" / "50-b.conf").write_text("# vm.swappiness = 9\n-vm/swappiness=3\n")
    (host / "run" / "90-c.conf").write_text("kernel.panic = 1\n")
    (host / "etc" / "50-b.txt").write_text("vm.swappiness = 4\n")
    found = read("vm.swappiness").boot
    assert [(Path(f.path).name, f.values["vm.swappiness"]) for f in found] == [
        ("10-a.conf", "1"),
        ("50-b.conf", "3"),
    ]


def boot(*files: tuple[str, str]) -> Sysctl:
    made = [{"path": path, "values": {"vm.swappiness": value}} for path, value in files]
    return parse({"values": {"vm.swappiness": "0"}, "files": made})


def test_only_a_later_file_with_another_value_overrules() -> None:
    ours = (operation.PATH, "0")
    late = ("/etc/sysctl.d/zzz.conf", "10")
    assert operation.overruled(boot(("/etc/sysctl.d/99-sysctl.conf", "60"), ours), WANT) == []
    assert operation.overruled(boot(ours, (late[0], "0")), WANT) == []
    shipped = ("/usr/lib/sysctl.d/10-zram.conf", "10")
    assert operation.overruled(boot(shipped), WANT) == [], "our file is not there yet"
    assert operation.overruled(boot(ours, ("/run/sysctl.d/zzz.conf", "10")), WANT) != []
    assert operation.overruled(boot(ours, late), WANT) == [
        f"/etc/sysctl.d/zzz.conf sets vm.swappiness to 10 after {operation.PATH}"
    ]


def test_the_plan_is_what_is_otherwise_and_there() -> None:
    found = parse({"values": {"vm.swappiness": "60", "vm.no_such": None}, "files": []})
    assert operation.wrong(found, WANT) == {"vm.swappiness": "0"}
    assert operation.unsupported(found, WANT) == ["vm.no_such"]
    now = parse({"values": {"vm.swappiness": "0", "vm.no_such": None}, "files": []})
    assert operation.wrong(now, WANT) == {}


def test_our_file_is_kept_by_its_bytes_and_mode() -> None:
    def kept(text: bytes, mode: int) -> bool:
        files = {operation.PATH: file_of(text, mode)}
        return operation.kept(state_of({"files": files}), WANT)

    assert kept(operation.text(WANT), 0o644)
    assert not kept(operation.text(WANT), 0o600)
    assert not kept(operation.text({"vm.swappiness": 1}), 0o644)
    assert not operation.kept(state_of({"files": {operation.PATH: None}}), WANT)
    assert not operation.kept(state_of({}), WANT)


def test_our_file_sets_what_the_kernel_has_and_passes_over_the_rest() -> None:
    lines = operation.text(WANT).decode().splitlines()
    assert lines[1:] == ["-vm.swappiness = 0", "-vm.no_such = 1"]
    assert sysctls.assignments(operation.text(WANT).decode(), ["vm.swappiness"]) == {
        "vm.swappiness": "0"
    }
