"""The console command: what it says, when it refuses, and how it waits for its unit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from facts.engines.containers import COMPOSE_PROJECT, LABEL
from facts.run.program import PROGRAM
from operations.run.program import UNDO_COMMAND, engine_signs, undo_text
from stacks.definition import load, names
from tests.unit.on_host import module

engines, containers, journal, clocks, restore, undo = map(
    module,
    (
        *("engines.engines", "engines.containers", "run.journal", "clocks.kept"),
        *("undo.restore", "undo.undo"),
    ),
)
policies = module("engines.kept")
KNOWN = [load(name) for name in names()]
SIGNS = json.loads(engine_signs(KNOWN))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(undo, "STATE", str(tmp_path / "run"))
    monkeypatch.setattr(undo, "ANSWER", str(tmp_path / "run" / "undo.json"))
    monkeypatch.setattr(undo.os, "geteuid", lambda: 0)
    monkeypatch.setattr(undo.engines, "running", lambda _: [])


def journalled(tmp_path: Path) -> Path:
    file = tmp_path / "a"
    file.write_text("original")
    journal.put(str(file), 0o644, (os.getuid(), os.getgid()), b"ours")
    return file


def container(name: str, labels: dict[str, str], image: str = "x/y", **more: Any) -> dict[str, Any]:
    return {
        "Id": name * 8,
        "Name": f"/{name}",
        "Config": {"Labels": labels, "Image": image},
        "State": {"Running": True},
        "HostConfig": {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}},
    } | more


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str]]:
    status = undo.main([*argv, "--words"])
    return status, capsys.readouterr().out.splitlines()


def test_an_empty_journal_is_nothing_to_undo(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (0, ["nothing to undo"])
    assert said(capsys, "--plan") == (0, ["nothing to undo"])
    assert undo.main(["--run"]) == undo.NOTHING


def test_a_plan_for_people_names_what_would_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = journalled(tmp_path)
    assert said(capsys, "--plan") == (0, [f"would be given back: {file}"])
    file.write_text("edited")
    _, lines = said(capsys, "--plan")
    assert lines[0].startswith(f"left alone: {file} (edited since: line 1;")
    assert said(capsys, "--plan", "--force", str(file))[1] == [f"would be given back: {file}"]


def test_whoever_is_not_root_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journalled(tmp_path)
    monkeypatch.setattr(undo.os, "geteuid", lambda: 1000)
    for words in ((), ("--plan",)):
        assert said(capsys, *words) == (1, ["run it as root: sudo spark-converge-undo"])
    shutil.rmtree(journal.ROOT)  # as it looks to who may not enter it
    assert said(capsys) == (1, ["run it as root: sudo spark-converge-undo"])


def test_it_is_refused_while_an_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = journalled(tmp_path)
    monkeypatch.setattr(undo.engines, "running", lambda _: ["lab-rank0", "dsf"])
    status, (line,) = said(capsys)
    assert (status, line) == (
        1,
        "refused while lab-rank0, dsf runs here: stop it first (docker stop)",
    )
    assert file.read_text() == "ours"


@pytest.mark.parametrize(
    "found",
    [
        container("any", {f"{LABEL}stack": "gone-stack"}),
        container("any", {COMPOSE_PROJECT: SIGNS["compose_projects"][0]}),
        container("any", {}, SIGNS["image_repositories"][0] + "@sha256:00"),
        container("any", {}, SIGNS["image_repositories"][0] + ":tag"),
        container(SIGNS["name_patterns"][0].replace("*", "x"), {}),
    ],
)
def test_an_engine_is_known_by_label_project_image_or_name(found: dict[str, Any]) -> None:
    other = container("postgres", {COMPOSE_PROJECT: "shop"}, "postgres:16")
    names_found = [c["Name"] for c in (found, other) if engines.is_engine(c, SIGNS)]
    assert names_found == [found["Name"]]


def test_work_in_the_unit_leaves_its_answer_and_the_words_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = journalled(tmp_path)
    Path(undo.STATE).mkdir()
    answer = undo.main(["--here", "--force"])
    assert json.loads(Path(undo.ANSWER).read_text()) == answer
    assert undo.words(answer) == [
        f"given back: {file}",
        f"the journal of what was given back is now {answer['aside']}",
    ]
    assert file.read_text() == "original"


def test_an_error_in_the_unit_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(undo.STATE).mkdir()
    monkeypatch.setattr(restore, "undo", lambda _: (_ for _ in ()).throw(OSError("broken")))
    assert undo.main(["--here"]) == {"ok": False, "message": "OSError: broken; run it again"}


# The unit, with programs that stand for systemd's


def programs(tmp_path: Path, systemd_run: str, systemctl: str) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("systemd-run", systemd_run), ("systemctl", systemctl)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_work_is_started_in_a_unit_and_its_answer_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = programs(
        tmp_path,
        f'#!/bin/sh\necho "$@" > {tmp_path}/called\necho \'{{"ok": true}}\' > {undo.ANSWER}\n',
        "#!/bin/sh\necho inactive; exit 3\n",
    )
    monkeypatch.setenv("PATH", path["PATH"])
    Path(undo.STATE).mkdir()
    Path(undo.ANSWER).write_text('{"ok": false, "message": "of the time before"}')
    assert undo.detached(["/etc/a b"]) == {"ok": True}
    called = (tmp_path / "called").read_text()
    assert "--wait --collect --unit=spark-converge-undo" in called
    assert called.endswith(f"-I {PROGRAM} undo --here --force /etc/a b\n")


def test_work_that_was_started_before_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks find it active; then its answer is there."""
    path = programs(
        tmp_path,
        "#!/bin/sh\nexit 99\n",
        f'#!/bin/sh\necho x >> {tmp_path}/looks\n[ "$(wc -l < {tmp_path}/looks)" -lt 3 ] '
        f"&& echo active || {{ echo inactive; echo '{{\"ok\": true}}' > {undo.ANSWER}; }}\n",
    )
    monkeypatch.setenv("PATH", path["PATH"])
    monkeypatch.setattr(undo.time, "sleep", lambda _: None)
    assert undo.detached([]) == {"ok": True}


def test_a_unit_without_an_answer_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = programs(
        tmp_path, "#!/bin/sh\necho no bus >&2; exit 1\n", "#!/bin/sh\necho inactive; exit 3\n"
    )
    monkeypatch.setenv("PATH", path["PATH"])
    Path(undo.STATE).mkdir()
    Path(undo.ANSWER).write_text('{"ok": true}')  # of the time before
    answer = undo.detached([])
    assert answer["ok"] is False
    assert answer["message"].startswith("no answer (no bus): see `journalctl -u")


def test_the_installed_command_passes_its_words_on(tmp_path: Path) -> None:
    """The text that lands in /usr/local/sbin, run by a real shell against this program."""
    text = undo_text(KNOWN).decode()
    assert text.startswith("#!/bin/sh\n")
    command = tmp_path / Path(UNDO_COMMAND).name
    command.write_text(text.replace("/usr/local/lib/spark-converge/spark_host", str(PROGRAM)))
    done = subprocess.run(
        ["/bin/sh", command, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--plan" in done.stdout
    assert "--engines" not in done.stdout


def test_a_mistyped_option_is_a_usage_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", PROGRAM, "undo", "--everything"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# Containers and governors


def policy(name: str, count: int = 0) -> dict[str, Any]:
    return {"RestartPolicy": {"Name": name, "MaximumRetryCount": count}}


@pytest.mark.parametrize(
    ("name", "count", "text"),
    [("", 0, "no"), ("always", 0, "always"), ("on-failure", 3, "on-failure:3")],
)
def test_a_policy_is_kept_as_docker_takes_it(name: str, count: int, text: str) -> None:
    assert containers.policy_of({"HostConfig": policy(name, count)}) == text


@pytest.mark.parametrize(
    ("value", "now", "word"),
    [
        ("always start", container("a", {}, HostConfig=policy("no")), "restore"),
        ("always start", container("a", {}, HostConfig=policy("always")), "same"),
        ("always leave", container("a", {}, HostConfig=policy("unless-stopped")), "edited"),
        (
            "always start",
            container("a", {}, HostConfig=policy("always"), State={"Running": False}),
            "restore",
        ),
        (
            "always leave",
            container("a", {}, HostConfig=policy("always"), State={"Running": False}),
            "same",
        ),
        ("always start", container("b", {}), "gone"),
    ],
)
def test_a_container_is_given_back_only_as_long_as_it_is_that_one(
    value: str, now: dict[str, Any], word: str
) -> None:
    entry = {"name": "restart.a.aaaaaaaa", "value": f"aaaaaaaa {value}", "ours": ["no"]}
    assert policies.called(entry) == "container a"
    assert policies.look(entry, [now])["verdict"] == word


@pytest.mark.parametrize(("installed", "left"), [(True, ["container a"]), (False, [])])
def test_a_dead_docker_keeps_nothing_else_from_being_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, left: list[str]
) -> None:
    socket = tmp_path / "docker.sock"
    if installed:
        socket.touch()
    monkeypatch.setattr(containers, "SOCKET", str(socket))
    monkeypatch.setattr(containers, "which", lambda _: False)
    monkeypatch.setattr(restore.links, "FOLDERS", ())
    monkeypatch.setattr(module("watchdogs.holds"), "RECORD", str(tmp_path / "held.json"))
    file = journalled(tmp_path)
    journal.setting("restart.a.aaaaaaaa", "aaaaaaaa always start", "no")
    answer = restore.undo(())
    assert file.read_text() == "original"
    assert answer["restored"] == [str(file)]
    assert [one["name"] for one in answer["left"]] == left
    told = [*answer["notes"], *(one["why"] for one in answer["left"])]
    assert len(told) == 1
    assert ("the docker daemon does not answer" if installed else "does not exist") in told[0]


@pytest.mark.parametrize(
    ("now", "word"),
    [("performance", "same"), ("schedutil", "restore"), ("powersave", "edited"), (None, "gone")],
)
def test_a_governor_set_by_somebody_since_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str | None, word: str
) -> None:
    monkeypatch.setattr(clocks.cpufreq, "POLICIES", str(tmp_path))
    if now:
        (tmp_path / "policy0").mkdir()
        (tmp_path / "policy0" / "scaling_governor").write_text(now + "\n")
    entry = {"name": "governor.policy0", "value": "performance", "ours": ["schedutil"]}
    assert clocks.look(entry)["verdict"] == word
