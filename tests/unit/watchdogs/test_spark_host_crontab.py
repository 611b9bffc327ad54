"""Crontabs as spark-host reads them, and watchdogs that run at this moment."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from facts.watchdogs.crontab import table
from operations.watchdogs.crontab import hold
from tests.unit.on_host import module

crontab = module("watchdogs.crontab")
ODD = b"MAILTO=x\r\n*/5\t* * * * /bin/true 2>&1 \\%F %x & # \xff\xc3\xa9"


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """User crontabs in a folder; no system tables."""
    monkeypatch.setattr(crontab, "PLACES", crontab.places(str(tmp_path)))
    folder = Path(crontab.PLACES.users)
    folder.mkdir(parents=True)
    monkeypatch.setattr(crontab.journal, "ROOT", str(tmp_path / "journal"))
    return folder


def section() -> dict[str, Any]:
    found: dict[str, Any] = crontab.section({"words": []})
    return found


def test_a_table_travels_as_bytes_with_its_mode_and_owner(spool: Path) -> None:
    path = spool / "root"
    path.write_bytes(ODD)
    path.chmod(0o600)
    found = section()["users"]["root"]
    assert base64.b64decode(found["b64"]) == ODD
    assert (found["mode"], found["uid"]) == (0o600, path.stat().st_uid)


def test_scripts_that_start_containers_are_named_as_in_the_line(spool: Path) -> None:
    starter, other = spool.parent / "ready.sh", spool.parent / "backup.sh"
    starter.write_text("#!/bin/sh\ndocker compose up -d\n")
    other.write_text("#!/bin/sh\nrsync /srv /mnt\n")
    program = spool.parent / "program"
    program.write_bytes(b"\x7fELF\0docker")
    (spool / "root").write_text(
        f"* * * * * {starter} >> /var/log/x 2>&1\n0 1 * * * {other}\n0 2 * * * {program}\n"
    )
    assert starters() == [str(starter)]


def test_a_script_is_found_in_a_line_that_is_held(spool: Path) -> None:
    """Else nobody could say what a held line is for."""
    starter = spool.parent / "ready.sh"
    starter.write_text("docker start x\n")
    (spool / "root").write_text(f"#SPARK-HELD-20260826 * * * * * {starter}\n")
    assert starters() == [str(starter)]


def starters() -> list[str]:
    """Words of watchdog lines, whose ever, that name a script."""
    found = section()
    tables = [*found["users"].values(), *found["system"].values()]
    lines = [line for table in tables for line in table["lines"].values()]
    return sorted({script for line in lines for script in line["scripts"]})


STARTS = "#!/bin/sh\ndocker compose up -d\n"


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("GUARD={tmp}/ready.sh\n* * * * * $GUARD\n", "$GUARD"),
        ("GUARD = '{tmp}/ready.sh'\r\n* * * * * sh ${GUARD} -q\r\n", "${GUARD}"),
        ('OPT="{tmp}"\nHOME=/\n* * * * * $OPT/ready.sh\n', "$OPT/ready.sh"),
        ("PATH=/usr/bin:{tmp}\n* * * * * ready.sh\n", "ready.sh"),
        ("HOME={tmp}\n* * * * * ./ready.sh\n", "./ready.sh"),
        ('RUN="docker start glm-head"\n* * * * * $RUN\n', "$RUN"),
        ("* * * * * systemctl -q is-active eng || systemctl restart eng\n", "eng"),
        ("* * * * * systemctl --no-block start eng@1.timer\n", "eng@1.timer"),
        ("* * * * * run-parts {tmp}/guards\n", "{tmp}/guards"),
    ],
)
def test_a_starter_is_found_behind_what_a_table_says_around_it(
    spool: Path, monkeypatch: pytest.MonkeyPatch, table: str, named: str
) -> None:
    """Assignments of the table, units that a line starts, folders whose scripts it runs."""
    tmp = spool.parent
    monkeypatch.setattr(crontab.mentions.scopes, "UNIT_FOLDERS", (str(tmp),))
    for path in (tmp / "ready.sh", tmp / "guards" / "up"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(STARTS)
        path.chmod(0o755)
    for name in ("eng", "eng@"):
        (tmp / f"{name}.service").write_text("[Service]\nExecStart=/usr/bin/docker start glm\n")
    (spool / "root").write_text(table.replace("{tmp}", str(tmp)))
    text = (spool / "root").read_bytes().decode()
    found = section()["users"]["root"]["lines"]
    (line,) = found.values()
    assert named.replace("{tmp}", str(tmp)) in line["scripts"]
    assert list(found) == [str(len(text.splitlines()))], "only the last line is a watchdog"


@pytest.mark.parametrize(
    "line",
    [
        "* * * * * systemctl stop eng",
        "* * * * * systemctl start other; echo eng",
        "17 * * * * cd / && run-parts --report /etc/cron.hourly",
        "* * * * * run-parts {tmp}/guards.off",
        "* * * * * $UNSET/ready.sh",
    ],
)
def test_what_starts_nothing_is_no_starter(
    spool: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    tmp = spool.parent
    monkeypatch.setattr(crontab.mentions.scopes, "UNIT_FOLDERS", (str(tmp),))
    (tmp / "eng.service").write_text("[Service]\nExecStart=/usr/bin/docker start glm\n")
    (tmp / "other.service").write_text("[Service]\nExecStart=/bin/true\n")
    (tmp / "guards.off").mkdir()
    for name, mode in (("up.sh", 0o755), ("up", 0o644)):  # run-parts takes neither
        (tmp / "guards.off" / name).write_text(STARTS)
        (tmp / "guards.off" / name).chmod(mode)
    (spool / "root").write_text(line.replace("{tmp}", str(tmp)) + "\n")
    assert starters() == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"A=1", "1"),
        (b" 'A' = \"x y\" \r", "x y"),
        (b"A='x", "'x"),
        (b'A="', '"'),
        (b"A =", ""),
        (b"A=b=c # d", "b=c # d"),
    ],
)
def test_an_assignment_is_read_as_cron_does(line: bytes, value: str) -> None:
    assert module("watchdogs.lines").variables(b"#A=0\n" + line + b"\n* * * * * A=2 x\n") == {
        "A": [value]
    }


def test_a_table_of_odd_names_and_many_variables_is_read_all_the_same(spool: Path) -> None:
    """Anybody may write one: what is read of it as root has a bound."""
    names = [f"A{n}" for n in range(60)]
    lines = [f"{name}=x" for name in names] + ["* * * * * " + "".join(f"${n}" for n in names)]
    (spool / "milo").write_text("\n".join(lines) + "\n")
    Path(crontab.PLACES.drop_ins).mkdir(parents=True)
    (Path(crontab.PLACES.drop_ins) / "odd").write_bytes(b"* * * * * a\0b /x\n* *\n@daily\n")
    found = section()
    assert (list(found["users"]), starters()) == (["milo"], [])


@pytest.mark.parametrize("held", ["", "#SPARK-HELD-20260826 "])
def test_a_line_of_a_system_table_runs_in_the_home_of_its_user(
    spool: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    (spool.parent / "ready.sh").write_text(STARTS)
    homes = {"milo": str(spool.parent)}
    monkeypatch.setattr(crontab, "home_of", lambda user: homes.get(user, "/nonexistent"))
    table = Path(crontab.PLACES.system[0])
    table.parent.mkdir()
    table.write_text(f"{held}* * * * * milo ./ready.sh\n")
    assert starters() == ["./ready.sh"]


@pytest.mark.parametrize("name", ["tmp.Xa1", ".root.spark-converge-new", ".placeholder"])
def test_what_crontab_or_a_cut_off_write_left_is_no_users_table(spool: Path, name: str) -> None:
    (spool / name).write_text("* * * * * docker start x\n")
    (spool / "folder").mkdir()
    assert section()["users"] == {}


def test_a_host_without_cron_says_so(spool: Path) -> None:
    spool.rmdir()
    assert section() == {"users": {}, "system": {}, "deleted": [], "installed": False}


# A watchdog that runs while its line is held


def started(script: Path, body: str) -> subprocess.Popen[bytes]:
    """The script as cron runs it, by a shell; waits until it is under way."""
    script.write_text(f"echo under way\n{body}\n")
    process = subprocess.Popen(
        ["/bin/sh", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"under way\n"
    return process


def pids(*scripts: str) -> list[int]:
    return [one.pid for one in crontab.running(scripts)]


def test_an_instance_that_ends_by_itself_is_awaited(tmp_path: Path) -> None:
    script = tmp_path / "ready.sh"
    process = started(script, "read line")
    assert pids(str(script)) == [process.pid]
    began = time.monotonic()
    assert process.stdin is not None
    ending = threading.Timer(0.2, process.stdin.close)
    ending.start()
    # a shell that has ended stays in /proc until it is reaped, without a command line
    assert crontab.settle([str(script)], wait_s=20) == {"ended": []}
    assert time.monotonic() - began < 5
    assert process.wait(5) in (0, 1)


def test_an_instance_that_stays_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Else the `docker compose up` of a script would go on without it."""
    script = tmp_path / "ready.sh"
    process = started(script, "sleep 60\ntrue")
    deadline = time.monotonic() + 5
    # Between its fork and its exec the child still has the command line of the shell.
    found = crontab.running([str(script)])
    while ["sleep", "60"] not in [one.argv for one in found] and time.monotonic() < deadline:
        time.sleep(0.01)
        found = crontab.running([str(script)])
    shell, child = sorted(found, key=lambda one: one.pid != process.pid)
    assert (shell.pid, child.argv) == (process.pid, ["sleep", "60"])
    answer = crontab.settle([str(script)], wait_s=0)
    assert set(answer["ended"]) == {shell.pid, child.pid}
    assert process.wait(5) == -15
    assert child.pid not in [one.pid for one in crontab.processes()]


def test_one_that_will_not_listen_is_made_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crontab, "END_S", 0.2)
    script = tmp_path / "ready.sh"
    process = started(script, "trap '' TERM\necho trapped\nread line")
    assert process.stdout is not None
    assert process.stdout.readline() == b"trapped\n"
    assert crontab.settle([str(script)], wait_s=0) == {"ended": [process.pid]}
    assert process.wait(5) == -9


def test_one_that_does_not_end_at_all_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "ready.sh"
    process = started(script, "read line")
    monkeypatch.setattr(crontab, "end", lambda found: found)
    try:
        with pytest.raises(crontab.Failed, match=rf"does not end: {process.pid} \(/bin/sh\)"):
            crontab.settle([str(script)], wait_s=0)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("other", ["ready.sh.old", "already.sh"])
def test_another_script_whose_name_is_like_it_is_left_alone(tmp_path: Path, other: str) -> None:
    process = started(tmp_path / other, "read line")
    try:
        assert pids(str(tmp_path / "ready.sh"), "ready.sh") == []
        assert crontab.settle([str(tmp_path / "ready.sh")], wait_s=0) == {"ended": []}
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_bare_name_stands_for_the_script_in_any_folder(tmp_path: Path) -> None:
    process = started(tmp_path / "ready.sh", "read line")
    try:
        assert pids("ready.sh") == pids("./ready.sh") == [process.pid]
        assert pids("eady.sh") == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("argv", "runs"),
    [
        (["/opt/ready.sh"], True),
        (["/bin/sh", "/opt/ready.sh", "--now"], True),
        (["-bash", "-e", "/opt/ready.sh"], True),
        (["python3.12", "-u", "/opt/ready.sh"], True),
        (["vim", "/opt/ready.sh"], False),
        (["tail", "-f", "/opt/ready.sh"], False),
        (["/bin/sh", "/opt/other.sh", "/opt/ready.sh"], False),
        (["sudo", "-e", "/opt/ready.sh"], False),
    ],
)
def test_whoever_only_looks_at_a_script_does_not_run_it(argv: list[str], runs: bool) -> None:
    assert crontab.runs_script(argv, ["/opt/ready.sh"]) is runs


UP = ["docker", "compose", "-p", "dsf", "up", "-d"]


@pytest.mark.parametrize(
    "command",
    [
        "docker compose -p dsf up -d",
        "cd /opt/dsf && docker compose -p dsf up -d >> /var/log/x 2>&1",
        "A=1 B='x y' docker compose -p dsf up -d 2> /dev/null",
        "(sleep 5; docker compose -p 'dsf' up -d)",
        "test -e /run/x || docker compose -p dsf up -d # at boot",
    ],
)
def test_a_shell_may_become_the_last_command_of_a_line(command: str) -> None:
    found = list(crontab.simple(command))
    assert UP in [argv[: len(UP)] for argv in found]


def test_a_command_that_no_shell_takes_has_no_parts() -> None:
    assert list(crontab.simple("docker run 'x")) == []


def test_a_line_without_a_script_is_found_by_its_command() -> None:
    command = "sleep 60; : docker start x"
    process = subprocess.Popen(["/bin/sh", "-c", command])
    try:
        assert process.pid in [one.pid for one in crontab.running([], [command])]
        assert crontab.running([], ["sleep 60"]) == []  # it mentions no engine
        assert process.pid in crontab.settle([], [command], wait_s=0)["ended"]
    finally:
        process.kill()
        process.wait()


def test_what_this_program_was_started_by_is_never_ended() -> None:
    """A person's own `sh -c` around a run that is started from a cron line."""
    ours = next(one for one in crontab.processes() if one.pid == os.getpid())
    assert not {os.getpid(), os.getppid()} & set(pids(ours.argv[0]))


# Lines that bore the tag before our time


def test_a_line_that_was_tagged_before_our_time_is_told_apart(spool: Path) -> None:
    theirs, armed = "#SPARK-HELD-20250101 @daily docker start a", "@daily docker start b"
    path = spool / "root"
    path.write_text(f"{theirs}\n{armed}\n")
    assert section()["users"]["root"]["kept"] == []  # nothing of ours was ever written here
    owner = (os.geteuid(), os.getegid())
    held = f"{theirs}\n#SPARK-HELD-20260826 {armed}\n"
    crontab.journal.put(str(path), 0o600, owner, held.encode(), "SPARK-HELD")
    assert section()["users"]["root"]["kept"] == [theirs]


def test_a_table_that_was_deleted_while_its_lines_were_held_is_said(spool: Path) -> None:
    line, owner = "@daily docker start b\n", (os.geteuid(), os.getegid())
    for name, last in (("root", "#SPARK-HELD-20260826 " + line), ("milo", line)):
        path = spool / name
        path.write_text(line)
        crontab.journal.put(str(path), 0o600, owner, last.encode(), "SPARK-HELD")
        assert str(path) not in section()["deleted"]
        path.unlink()
        assert crontab.rearm() == {"rearmed": [], "deleted": [str(spool / "root")]}
    assert section()["deleted"] == [str(spool / "root")]


def test_nothing_outside_of_the_folders_of_cron_that_were_named_is_touched(
    spool: Path, tmp_path: Path
) -> None:
    """Another test once wrote to the machine's own crontab: it had redirected one of two copies."""
    (spool / "root").write_text("@daily docker start b\n")
    found = table("root", section()["users"]["root"])
    assert found.path == str(spool / "root")
    text = hold(found.text, "SPARK-HELD", date(2026, 8, 26), list(found.lines))
    written: list[str] = []
    watching = [True]

    def watch(event: str, words: tuple[Any, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.chmod", "os.mkdir")
        changes |= event == "open" and bool(words[2] & (os.O_WRONLY | os.O_RDWR))
        if watching and changes and not isinstance(words[0], int):  # what is open was opened here
            written.append(os.path.realpath(os.fsdecode(words[0])))

    sys.addaudithook(watch)
    owner = (os.geteuid(), os.getegid())
    crontab.journal.put(found.path, found.mode, owner, text.encode(), "SPARK-HELD")
    crontab.rearm()
    watching.clear()
    assert (spool / "root").read_text() == "@daily docker start b\n"
    assert written
    assert [path for path in written if not path.startswith(f"{tmp_path}/")] == []
