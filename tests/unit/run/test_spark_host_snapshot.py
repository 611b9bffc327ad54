"""The snapshot as a real process on this machine, and what becomes of a part that fails."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from facts.memory.memory import Memory
from facts.run.program import END, PROGRAM, program_sha256, sources
from facts.snapshot import Ask, Snapshot
from tests.unit.on_host import module

snapshot = module("snapshot")
ASK: dict[str, Any] = {
    "units": [],
    "images": [],
    "shards": [],
    "files": [],
    "extra": [],
    "words": [],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_this_machine_is_read_whatever_it_lacks(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(b"\xff\0bytes")
    own.chmod(0o640)
    ask = vars(Ask(files=(str(own), str(tmp_path / "absent")), shards=((str(tmp_path), "a"),)))
    done = run("snapshot", json.dumps(ask))
    assert done.returncode == 0, done.stderr
    state = Snapshot().process(done.stdout.splitlines())
    assert isinstance(state.memory, Memory)
    figures = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert state.memory.total_mib == int(figures["MemTotal"].split()[0]) // 1024
    assert isinstance(state.files, dict)
    found = state.files[str(own)]
    assert found is not None
    assert (found.data, found.mode) == (b"\xff\0bytes", 0o640)
    assert state.files[str(tmp_path / "absent")] is None
    assert getattr(state.shards, "state", None) == {str(tmp_path): "unverified"}


@pytest.mark.parametrize(
    "error",
    [OSError("busy"), ValueError("x"), KeyError("State"), IndexError(0), AttributeError("get"),
     TypeError("null"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_part_that_fails_says_why_and_the_others_answer(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(_: Any) -> None:
        raise error

    monkeypatch.setattr(snapshot, "ALWAYS", {"memory": "memory.memory", "boot": "made_up"})
    monkeypatch.setitem(sys.modules, "made_up", SimpleNamespace(section=broken))
    answer = snapshot.main([json.dumps(ASK)])
    assert answer["boot"]["unknown"].startswith(type(error).__name__)
    assert "meminfo_kib" in answer["memory"]


def test_a_part_that_never_answers_keeps_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead(_: dict[str, Any]) -> None:
        threading.Event().wait()

    monkeypatch.setattr(snapshot, "LIMIT_S", 1)
    made_up = SimpleNamespace(section=dead, boot=lambda _: {"kernel": "6.12"})
    monkeypatch.setitem(sys.modules, "made_up", made_up)
    monkeypatch.setitem(snapshot.ALWAYS, "crontab", "made_up")
    monkeypatch.setitem(snapshot.ALWAYS, "boot", "made_up:boot")
    answer = snapshot.main([json.dumps(ASK)])
    assert list(answer) == list(snapshot.ALWAYS)
    assert answer["boot"] == {"kernel": "6.12"}
    assert answer["crontab"]["unknown"].startswith("no answer in 1 s")
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.endswith("(work)"))


def test_more_parts_on_a_dead_mount_than_are_read_at_once_keep_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead(_: dict[str, Any]) -> None:
        threading.Event().wait()

    names = [f"dead{number}" for number in range(snapshot.WORKERS + 1)]
    made_up = SimpleNamespace(section=dead, boot=lambda _: {"kernel": "6.12"})
    monkeypatch.setitem(sys.modules, "made_up", made_up)
    parts = {**dict.fromkeys(names, "made_up"), "boot": "made_up:boot"}
    monkeypatch.setattr(snapshot, "ALWAYS", parts)
    monkeypatch.setattr(snapshot, "STUCK_S", 0.1)
    monkeypatch.setattr(snapshot, "LIMIT_S", 1)
    answer = snapshot.main([json.dumps(ASK)])
    assert answer["boot"] == {"kernel": "6.12"}
    assert all("unknown" in answer[name] for name in names)


def test_the_sum_over_the_installed_program_is_the_one_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark_host"
    installed = module("run.installed")
    monkeypatch.setattr(installed, "INSTALLED", str(home))
    assert installed.program(ASK) == {"sha256": None}
    home.mkdir()
    for name in sources():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes((PROGRAM / name).read_bytes())
    (home / "SHA256").write_text("of no account\n")
    (home / "__pycache__").mkdir()
    assert installed.program(ASK) == {"sha256": program_sha256()}
    (tmp_path / "link").symlink_to(home.name)
    monkeypatch.setattr(installed, "INSTALLED", str(tmp_path / "link"))
    assert installed.program(ASK) == {"sha256": program_sha256()}
    with (home / "snapshot.py").open("ab") as file:
        file.write(b"\n")
    assert installed.program(ASK) != {"sha256": program_sha256()}


def test_every_answer_ends_with_the_mark() -> None:
    done = run("shm", "list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == END
    assert "segments" in json.loads(done.stdout.splitlines()[-2])


@pytest.mark.parametrize("arguments", [(), ("format",), ("--help",)])
def test_an_unknown_command_is_refused_with_those_that_there_are(
    arguments: tuple[str, ...],
) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "want one of: snapshot" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("journal", "no-such-action"), "ValueError: unknown action no-such-action"),
        (("journal",), "IndexError: list index out of range"),
        (("shards", "run", "1"), "JSONDecodeError: "),
    ],
)
def test_a_command_that_fails_says_why_in_its_answer_and_on_standard_error(
    arguments: tuple[str, ...], why: str
) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"spark-host {arguments[0]}: {why}")
    answer, end = done.stdout.splitlines()
    assert end == END
    assert json.loads(answer)["ok"] is False
    assert json.loads(answer)["message"].startswith(why)


def test_a_person_at_the_console_reads_no_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    undo = module("undo.undo")
    main = runpy.run_path(str(PROGRAM / "__main__.py"))["main"]

    def full(_: list[str]) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(undo, "main", full)
    assert main(["spark_host", "undo", "--words"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "spark-host undo: OSError: No space left on device\n"


def test_the_usage_lists_every_command_there_is() -> None:
    program = runpy.run_path(str(PROGRAM / "__main__.py"))
    lines = re.findall(r"python3 spark_host (\w+) {1,9}([a-z|]*)", program["__doc__"])
    assert {command for command, _ in lines} == set(program["COMMANDS"])
    for command, actions in lines:
        text = (PROGRAM / f"{program['COMMANDS'][command].replace('.', '/')}.py").read_text()
        missing = [one for one in actions.split("|") if not re.search(rf"\b{one}\b", text)]
        assert missing == [], command


def test_the_program_is_plain_python_without_anything_installed() -> None:
    """-I -S: no site-packages; the same interpreter options as on a bare host."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), "shm", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_links_and_devices_of_this_machine_are_listed() -> None:
    found = snapshot.answer("fabric", ASK)
    if "unknown" in found:
        pytest.skip(f"no ip command here: {found['unknown']}")
    assert found["interfaces"]["lo"]["mtu"] >= 1500
    assert "127.0.0.1/8" in found["interfaces"]["lo"]["addresses"]
    assert isinstance(found["default_interfaces"], list)


def test_a_connection_of_networkmanager_is_read_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "[connection]\nid=home\ninterface-name=enp1s0f1np1\n[wifi-security]\npsk=interface-name=x\n"
        "[ipv4]\naddress1=192.168.101.1/24,192.168.101.254\nmethod=manual\npassword=address1=1\n"
    )
    (tmp_path / "cx7.nmconnection").write_text(text)
    addresses = module("network.addresses")
    monkeypatch.setattr(addresses, "PROFILES", (str(tmp_path), str(tmp_path / "absent")))
    assert addresses.profiles() == {
        f"{tmp_path}/cx7.nmconnection": "interface-name=enp1s0f1np1\n"
        "address1=192.168.101.1/24,192.168.101.254\nmethod=manual"
    }


@pytest.mark.parametrize(
    ("target", "said"), [("/dev/null", "masked"), (None, None), ("", "not installed")]
)
def test_a_networkd_that_configures_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, said: str | None
) -> None:
    etc, usr = tmp_path / "etc", tmp_path / "usr"
    for folder in (etc, usr):
        folder.mkdir()
    if target != "":
        (usr / "systemd-networkd.service").write_text("[Service]\n")
    if target:
        (etc / "systemd-networkd.service").symlink_to(target)
    addresses = module("network.addresses")
    monkeypatch.setattr(addresses.units, "FOLDERS", (str(etc), str(usr)))
    assert addresses.networkd() == said


def test_of_a_table_of_gids_only_what_is_in_use_is_read(tmp_path: Path) -> None:
    zero, used = "0000:" * 7 + "0000\n", "0000:0000:0000:0000:0000:ffff:c0a8:6401\n"
    for index in range(1024):
        (tmp_path / str(index)).write_text(used if index in (3, 1000) else zero)
    (tmp_path / "7").unlink()
    (tmp_path / "7").mkdir()  # as an entry that the kernel refuses to read
    found = dict(module("network.addresses").table(str(tmp_path)))
    assert found == {"3": used.strip(), "1000": used.strip()}
    assert list(module("network.addresses").table(str(tmp_path / "none"))) == []


def test_a_read_of_the_host_loads_nothing_that_it_does_not_use() -> None:
    """Each costs a slow host more than a whole part: measured with -X importtime."""
    done = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", PROGRAM, "snapshot", json.dumps(ASK)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "subprocess" in loaded
    assert loaded.isdisjoint(
        {"argparse", "concurrent.futures", "dataclasses", "inspect", "logging", "tempfile"}
        | {"difflib", "http.client", "ipaddress", "shlex", "shutil", "urllib.parse"}
    )
