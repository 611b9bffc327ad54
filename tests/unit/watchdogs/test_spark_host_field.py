"""How people in the field name what their units and scripts run: each found where it lies."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import ModuleType

import pytest

from facts.watchdogs import starters as facts_starters
from tests.unit.on_host import module
from tests.unit.watchdogs.conftest import Write

scopes, specifiers = module("systemd.scopes"), module("systemd.specifiers")
UP = "#!/bin/sh\nexec docker run -d --name engine --gpus all img serve\n"
USER = "home/alice/.config/systemd/user"


@pytest.fixture
def alice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Her home; the one person here."""
    home = tmp_path / "home/alice"
    home.mkdir(parents=True)
    person = pwd.struct_passwd(("alice", "x", 54321, 54321, "", str(home), "/bin/bash"))
    real = pwd.getpwnam
    monkeypatch.setattr(pwd, "getpwnam", lambda name: person if name == "alice" else real(name))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: person)
    monkeypatch.setattr(scopes, "users", lambda: [person])
    monkeypatch.setattr(scopes, "USER_FOLDERS", ())
    return home


def found(starters: ModuleType) -> list[tuple[str, str]]:
    units = facts_starters.parse(starters.section({"words": []})).units
    return [(unit.name, unit.weight) for unit in units]


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("lane/scripts/serve.sh", "ExecStart=%h/lane/scripts/serve.sh --detach"),
        ("lane/serve.sh", "WorkingDirectory=%h/lane\nExecStart=/bin/sh serve.sh"),
        ("lane/serve.sh", "WorkingDirectory=-~/lane\nExecStart=/bin/sh ./serve.sh"),
        ("lane/serve.sh", "EnvironmentFile=-%h/lane/env\nExecStart=/bin/sh $SERVE"),
        ("lane/serve.sh", 'Environment="AT=%h/lane"\nExecStart=/bin/sh ${AT}/serve.sh'),
        ("lane/serve.sh", "Environment=PATH=%h/lane:/usr/bin\nExecStart=/bin/sh -c serve.sh"),
        (".local/state/lane.sh", "ExecStart=/bin/sh %S/%p.sh"),
        (".config/lane.service.sh", "ExecStart=/bin/sh %E/%n.sh"),
        ("u/alice/54321.sh", "ExecStart=/bin/sh %h/u/%u/%U.sh"),
        (".local/bin/serve.sh", "ExecStart=/usr/bin/env serve.sh"),
    ],
)
def test_a_users_unit_names_its_script_by_what_systemd_puts_in(
    starters: ModuleType, write: Write, alice: Path, script: str, lines: str
) -> None:
    write(f"home/alice/{script}", UP, 0o755)
    write("home/alice/lane/env", f"SERVE={alice}/lane/serve.sh\n")
    write(f"{USER}/lane.service", f"[Service]\n{lines}\n")
    assert found(starters) == [("lane.service", "starts")]


@pytest.mark.parametrize(
    ("unit", "script", "command"),
    [
        ("llm@.service", "big.sh", "/usr/bin/env bash {home}/%i.sh"),
        ("llm@.service", "opt/big/up", "/bin/sh %h/opt/%I/up"),
        ("llm@.service", "llm-big.sh", "/bin/sh %h/%p-%i.sh"),
        ("llm@big.service", "big.sh", "/bin/sh {home}/%i.sh"),
        ("llm@opt-big.service", "opt/big/up", "/bin/sh {home}/%I/up"),
        ("my-llm@.service", "llm.sh", "/bin/sh %h/%j.sh"),
    ],
)
def test_a_template_may_run_whatever_its_instance_names(
    starters: ModuleType, write: Write, alice: Path, unit: str, script: str, command: str
) -> None:
    write(f"home/alice/{script}", UP, 0o755)
    write(f"{USER}/{unit}", f"[Service]\nExecStart={command.format(home=alice)}\n")
    assert found(starters) == [(unit, "starts")]


@pytest.mark.parametrize(
    "lines",
    [
        "User=alice\nWorkingDirectory=~\nExecStart=/bin/bash serve.sh",
        "User=54321\nExecStart=/bin/bash -c '$HOME/serve.sh'",
        "User=alice\nExecStart=/bin/sh -c 'cd ~/ && ./serve.sh'",
        "User=alice\nExecStart=/bin/sh -c 'exec ~/serve.sh'",
    ],
)
def test_a_system_unit_of_a_person_starts_in_that_persons_home(
    starters: ModuleType, write: Write, alice: Path, lines: str
) -> None:
    write("home/alice/serve.sh", UP, 0o755)
    write("etc/lane.service", f"[Service]\n{lines}\n")
    assert found(starters) == [("lane.service", "starts")]


@pytest.mark.parametrize("user", ["%i", "svc-%i", "9" * 20, "²", "nobody-here", "a b", '"alice"'])
def test_an_odd_user_of_a_unit_hides_no_unit(starters: ModuleType, write: Write, user: str) -> None:
    """user@.service of Debian and Ubuntu has User=%i."""
    write("etc/llm@.service", f"[Service]\nUser={user}\nExecStart=docker start lane\n")
    write("etc/more.service", "[Service]\nExecStart=docker start more\n")
    assert found(starters) == [("llm@.service", "starts"), ("more.service", "starts")]


def test_the_home_of_a_system_units_specifier_is_roots(
    starters: ModuleType, write: Write, alice: Path
) -> None:
    """Not that of User=: systemd.unit(5) says so of %h."""
    write("home/alice/serve.sh", UP, 0o755)
    write("etc/lane.service", "[Service]\nUser=alice\nExecStart=/bin/sh %h/serve.sh\n")
    assert found(starters) == []


@pytest.mark.parametrize(
    "body",
    [
        'exec "$(dirname "$0")/run.sh" last',
        'exec "$(dirname -- "$(readlink -f -- "$0")")/run.sh"',
        'DIR=FOLDER\n"$DIR/run.sh" last',
        'H="$(cd "$(dirname "${BASH_SOURCE[0]}")" > /dev/null 2>&1 && pwd -P)"\n"$H"/run.sh',
        "${0%/*}/run.sh",
        '. "${BASH_SOURCE%/*}/run.sh"',
        "cd `dirname $0`\n./run.sh",
        'cd "$(dirname "$0")/.." && bash scripts/run.sh',
        "ROOT=$(cd $(dirname $0)/.. && pwd)\nS=$ROOT/scripts\nexec ${S}/run.sh",
        'readonly SELF=$(realpath "$0")\nexport D=$(dirname "$SELF")\nbash "$D/run.sh"',
        'BASE=${BASE:-FOLDER}\nif true; then "$BASE/run.sh"; fi',
        'start() { "$DIR/run.sh"; }\nDIR=FOLDER\nstart',
        ': "${DIR:=FOLDER}"\n"$DIR"/run.sh',
        "S=stop.sh\nS=run.sh\nsh FOLDER/$S",
        'import os\nos.system(os.path.join(os.path.dirname(__file__), "run.sh"))',
    ],
)
def test_a_script_calls_its_neighbour(
    starters: ModuleType, write: Write, alice: Path, body: str
) -> None:
    text = body.replace("FOLDER", str(alice / "repo/scripts"))
    write("home/alice/repo/scripts/run.sh", UP, 0o755)
    write("home/alice/repo/scripts/watch.sh", f"#!/bin/bash\n{text}\n", 0o755)
    write(f"{USER}/w.service", "[Service]\nExecStart=%h/repo/scripts/watch.sh --auto\n")
    assert found(starters) == [("w.service", "starts")]


@pytest.mark.parametrize(
    "body",
    [
        'exec "$(dirname "$0")/other.sh"',
        "DIR=/nowhere\n$DIR/run.sh",
        "awk '{print $0}' /etc/hosts",
        "A=$B\nB=$A\n$A/run.sh",
        "D=$D/x\n$D/run.sh",
    ],
)
def test_a_script_that_calls_something_else_is_left_alone(
    starters: ModuleType, write: Write, alice: Path, body: str
) -> None:
    write("home/alice/repo/scripts/run.sh", UP, 0o755)
    write("home/alice/repo/scripts/other.sh", "#!/bin/sh\ntrue\n", 0o755)
    write("home/alice/repo/scripts/watch.sh", f"#!/bin/bash\n{body}\n", 0o755)
    write(f"{USER}/w.service", "[Service]\nExecStart=%h/repo/scripts/watch.sh\n")
    assert found(starters) == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (b"100%% %x %", b"100% %x %"),
        (b"%i|%I|%f", b"a-b\\x2dc|a/b-c|/a/b-c"),
        (b"%n|%p|%j", b"my-llm@a-b\\x2dc.service|my-llm|llm"),
        (b"%t|%S|%C|%L|%E|%h|%u", b"/run|/var/lib|/var/cache|/var/log|/etc|/root|root"),
    ],
)
def test_specifiers_are_read_as_systemd_does(text: bytes, meant: bytes) -> None:
    assert specifiers.expanded(text, "my-llm@a-b\\x2dc.service") == meant
