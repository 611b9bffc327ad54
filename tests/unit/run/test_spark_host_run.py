"""Programs that the on-host program runs, and what it reads of their output."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from facts.run.program import PROGRAM
from tests.unit.on_host import module

ranks, run = module("launch.ranks"), module("run.command")


def test_output_that_is_not_utf_8_is_read_all_the_same() -> None:
    code, out, err = run.run(["printf", r"loading \303"])
    assert (code, out, err) == (0, "loading \ufffd", "")
    _code, out, err = run.run(["sh", "-c", r"printf 'odd \303\n' >&2; printf 'a\377b\n'"])
    assert (out, err) == ("a\ufffdb\n", "odd \ufffd\n")


@pytest.fixture
def docker(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A docker on the path whose container logs half a character."""
    one = {"Id": "a", "State": {"Status": "running"}, "RestartCount": 0, "Config": {"Labels": {}}}
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\nif [ $1 = inspect ]; then\n"
        f"    echo '{json.dumps([one])}'\nelse\n    printf 'shard 7 \\303\\n'\nfi\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.usefixtures("docker")
def test_a_rank_is_looked_at_whose_log_was_cut_inside_a_character() -> None:
    found = ranks.look("engine", "0")
    assert found["log"] == ["shard 7 \ufffd"]
    json.dumps(found).encode("ascii")


def test_the_log_of_such_a_rank_is_kept(docker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "STATE", str(docker / "state"))
    found = ranks.save("gen", ["engine"])
    kept = docker / "state" / "saved" / "gen" / "engine.log"
    assert found == {"folder": str(kept.parent), "unread": []}
    assert kept.read_text() == "shard 7 \ufffd\n"


@pytest.mark.parametrize(
    "spoken",
    [{"LANG": "fr_FR.UTF-8"}, {"LC_ALL": "de_DE.UTF-8"}, {"LANGUAGE": "fr:de"}, {}],
    ids=str,
)
def test_every_program_speaks_the_language_that_is_read(
    docker: Any, spoken: dict[str, str]
) -> None:
    """A container that is gone is known by docker's own words."""
    (docker / "docker").write_text(
        '#!/bin/sh\nif [ "$LC_ALL" = C.UTF-8 ] && [ -z "$LANGUAGE" ]; then\n'
        "    echo 'Error: No such container: engine' >&2\nelse\n"
        "    echo 'Erreur : aucun conteneur de ce nom : engine' >&2\nfi\nexit 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "ranks", "look", "engine", "0"],
        env={"PATH": f"{docker}:/usr/bin:/bin", **spoken},
        check=False,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout.splitlines()[0])["state"] is None, done.stderr


def test_docker_is_asked_at_the_socket_that_the_state_is_read_from(docker: Any) -> None:
    """Whatever context root's docker has: else one daemon is looked at and another one told."""
    seen = docker / "seen"
    (docker / "docker").write_text(f"#!/bin/sh\necho $DOCKER_HOST >> {seen}\nexit 1\n")
    subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "ranks", "look", "engine", "0"],
        env={"PATH": f"{docker}:/usr/bin:/bin", "DOCKER_HOST": "tcp://elsewhere:2376"},
        check=False,
        capture_output=True,
    )
    assert set(seen.read_text().split()) == {f"unix://{module('engines.containers').SOCKET}"}


def test_work_that_goes_on_by_itself_is_started_with_this_program() -> None:
    """A unit of systemd gets its folder: what lies there is what python3 can run."""
    assert str(PROGRAM) == module("run.command").PROGRAM
    assert (PROGRAM / "__main__.py").is_file()
    for name in ("run.detached", "network.fabric", "undo.undo"):
        assert str(PROGRAM) == module(name).PROGRAM
