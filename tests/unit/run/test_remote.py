"""One command on a host from inside an operation: links that break, answers that are cut off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors import util

from facts.run.language import plain
from facts.run.program import PROGRAM
from operations.run.remote import RemoteError, call, run
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import cluster


def test_a_link_that_broke_is_opened_anew_for_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = made_job(cluster(), [{}, {}], None, ()).hosts[1]
    real = host.connector.run_shell_command

    def dead(*_: Any, **__: Any) -> Any:
        raise OSError("Broken pipe")

    monkeypatch.setattr(host.connector, "run_shell_command", dead)
    with pytest.raises(RemoteError, match=r"@fake/spark2: the connection is gone \(Broken pipe\)"):
        run(host, "first")
    assert not host.connected
    monkeypatch.setattr(host.connector, "run_shell_command", real)
    run(host, "second")
    assert host.connected
    assert any("second" in told for told in commands(host))


def test_an_answer_without_its_end_is_no_answer() -> None:
    answers = {0: {"ranks look": ['{"state": null, "log": [']}}
    host = made_job(cluster(), [{}, {}], None, (), responses=answers).hosts[0]
    with pytest.raises(RemoteError, match="the answer is cut short"):
        call(host, "ranks", "look", "x", "0")


def test_the_reason_of_a_failed_command_reaches_the_person() -> None:
    """The program itself, failing here, and its answer read as an operation reads it."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "ranks", "no-such-action"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    answers = {0: {"ranks look": done.stdout.splitlines()}}
    host = made_job(cluster(), [{}, {}], None, (), responses=answers).hosts[0]
    with pytest.raises(RemoteError) as error:
        call(host, "ranks", "look", "x", "0")
    assert str(error.value) == "@fake/spark1: ranks look: ValueError: unknown action no-such-action"


# In another language


def speaking(folder: Path, name: str, french: str, english: str, then: str) -> None:
    """A program that says one thing in French, and the other where it is asked for that."""
    program = folder / name
    program.write_text(
        '#!/bin/sh\nif [ "$LC_ALL" = C ] || { [ "$LC_ALL" = C.UTF-8 ] && [ -z "$LANGUAGE" ]; }\n'
        f"then said='{english}'; else said='{french}'; fi\n{then}\n"
    )
    program.chmod(0o755)


@pytest.fixture
def french(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in {"LANG": "fr_FR.UTF-8", "LC_ALL": "fr_FR.UTF-8", "LANGUAGE": "fr"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_command_on_a_host_speaks_the_language_that_is_read(french: Path) -> None:
    speaking(french, "docker", "introuvable", "not found", 'echo "$said"')
    host = made_job(cluster(), [{}, {}], None, ()).hosts[0]
    run(host, "docker inspect x")
    (command,) = [told for told in commands(host) if "docker inspect" in told]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "not found\n"


def test_a_french_sudo_that_asks_is_given_the_password_here(
    french: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking(
        french, "sudo",
        "sudo : il est nécessaire de saisir un mot de passe", "sudo: a password is required",
        'case "$*" in *-A*) while [ "$1" != sh ]; do shift; done; exec "$@" ;; esac\n'
        'echo "$said" >&2; exit 1',
    )  # fmt: skip
    asked: list[str] = []

    def typed(words: str) -> str:
        asked.append(words)
        return "secret"

    monkeypatch.setattr(util, "getpass", typed)
    state = State(Inventory((["@local"], {})), Config(SUDO=True))  # type: ignore[no-untyped-call]
    connect_all(state)
    host = state.inventory.get_host("@local")
    assert run(host, "echo done") == "done"
    assert len(asked) == 1


def test_a_connection_asks_for_that_language_once_and_again_when_it_is_new() -> None:
    def connection() -> Any:
        told: list[dict[str, Any]] = []

        def exec_command(_command: str, **words: Any) -> None:
            told.append(words)

        return SimpleNamespace(exec_command=exec_command, told=told)

    host: Any = SimpleNamespace(connector=SimpleNamespace(client=connection()))
    for _ in range(2):
        for _ in range(2):
            plain(host)
        host.connector.client.exec_command("sudo -n true", get_pty=False)
        assert host.connector.client.told == [{"environment": {"LC_ALL": "C"}, "get_pty": False}]
        host.connector.client = connection()
