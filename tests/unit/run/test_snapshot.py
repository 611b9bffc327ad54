"""A host's state from what spark-host answered: odd output is Unknown, and nothing raises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyinfra.connectors.fake import FakeConnector

from facts.engines.containers import Containers
from facts.network.fabric import Fabric, bond
from facts.run.program import END, PROGRAM, program_archive, program_sha256
from facts.run.unknown import Unknown
from facts.snapshot import Ask, Snapshot
from facts.state import HostState, state_of
from facts.systemd.services import Services
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import Snapshot as Made
from tests.plan.made_pair import bond_text, cluster, dirty, locked

PARTS = tuple(HostState.__dataclass_fields__)
EXTRA = ("holders", "adoptable", "leftovers", "machine", "gpu", "discovered", "journal")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder: Path = tmp_path_factory.mktemp("locks")
    return dirty(cluster(), 0, locked("lab", folder), locked("dsf-lab", folder))


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["b64", "Id", "====", "ï¿½", "1e999", "/"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(anything)
def test_any_json_is_a_state(answer: Any) -> None:
    state = state_of(answer)
    assert set(vars(state)) == set(PARTS)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PARTS, anything)))
def test_any_json_in_the_parts_is_a_state(answer: dict[str, Any]) -> None:
    state = state_of(answer)
    for part in PARTS:
        if part not in answer and part in EXTRA:
            assert getattr(state, part) is None
        elif part not in answer or not isinstance(answer[part], dict):
            assert isinstance(getattr(state, part), Unknown)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, as keys and indexes."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = [at]
    for key, inner in pairs:
        deeper = isinstance(inner, dict | list)
        found += places(inner, (*at, key)) if deeper else [(*at, key)]
    return found


@settings(max_examples=300)
@given(data=st.data(), odd=anything)
def test_one_odd_value_anywhere_spoils_at_most_its_own_part(
    document: Made, data: st.DataObject, odd: Any
) -> None:
    place = data.draw(st.sampled_from(places(document)[1:]))
    broken = json.loads(json.dumps(document))
    at = broken
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = odd
    assert set(state_of(broken).unknowns()) <= {place[0]}


def test_a_whole_answer_has_no_unknown_part(document: Made) -> None:
    state = Snapshot().process([json.dumps(document), END])
    assert state.unknowns() == {}
    assert isinstance(state.containers, Containers)
    assert [c.name for c in state.containers.all] == ["dsf-lab-engine-1"]
    assert isinstance(state.services, Services)
    assert state.services.asked["gdm3.service"].name == "gdm.service"


def test_a_number_beyond_all_measure_is_odd(document: Made) -> None:
    """1e999 is plain JSON and becomes infinity, which no int holds."""
    text = json.dumps(document).replace('"ExitCode": 0', '"ExitCode": 1e999')
    assert set(Snapshot().process([text, END]).unknowns()) == {"containers"}


def test_a_part_that_failed_leaves_the_others(document: Made) -> None:
    state = state_of(document | {"containers": {"unknown": "Failed: no daemon"}})
    assert state.unknowns() == {"containers": Unknown("Failed: no daemon")}
    assert str(state.containers) == "unknown (Failed: no daemon)"


@pytest.mark.parametrize(
    "output",
    [
        [],
        [END + "x"],
        ["{}"],
        ['{"boot": {}', ""],
        ["{}", END, "sudo: a later line"],
        ["[" * 100_000, END],
        ["not json", END],
        [END],
    ],
)
def test_cut_off_or_odd_output_is_a_host_of_which_nothing_is_known(output: list[str]) -> None:
    state = Snapshot().process(output)
    assert set(state.unknowns()) == set(PARTS)


def test_an_answer_cut_at_any_place_is_never_a_clean_host(document: Made) -> None:
    text = f"{json.dumps(document)}\n{END}\n"
    for length in range(0, len(text) - 1, 97):
        state = Snapshot().process(text[:length].splitlines())
        assert set(state.unknowns()) == set(PARTS)


def test_no_answer_at_all_is_unknown_too() -> None:
    assert set(Snapshot.default().unknowns()) == set(PARTS)


def test_an_absent_docker_is_neither_empty_nor_unknown() -> None:
    none = state_of({"containers": {"installed": False, "containers": []}})
    assert isinstance(none.containers, Containers)
    assert not none.containers.installed
    assert isinstance(state_of({}).containers, Unknown)


# /proc/net/bonding


def test_a_bond_is_read_as_the_kernel_writes_it() -> None:
    found = bond("bond0", bond_text({"enp1s0f0np0": "up", "enp1s0f1np1": "down"}))
    assert found.mode == "active-backup"
    assert found.active == "enp1s0f0np0"
    assert found.members == ("enp1s0f0np0", "enp1s0f1np1")
    assert found.members_up == ("enp1s0f0np0",)


@pytest.mark.parametrize("status", ["going down", "going back", "down"])
def test_a_member_whose_link_changes_is_a_member_that_is_not_up(status: str) -> None:
    found = bond("bond0", bond_text({"a": "up", "b": status}))
    assert (found.members, found.members_up) == (("a", "b"), ("a",))


def test_a_bond_without_members_has_no_active_one() -> None:
    found = bond("bond0", bond_text({}, "load balancing (round-robin)"))
    assert (found.mode, found.active, found.members) == ("balance-rr", None, ())


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("fault-tolerance (active-backup) (fail_over_mac active)", "active-backup"),
        ("load balancing (xor)", "balance-xor"),
        ("IEEE 802.3ad Dynamic link aggregation", "802.3ad"),
        ("adaptive load balancing", "balance-alb"),
        ("something new", "something new"),
    ],
)
def test_modes_have_the_names_that_netplan_gives_them(written: str, mode: str) -> None:
    assert bond("bond0", bond_text({"a": "up"}, written)).mode == mode


def test_the_partner_section_of_802_3ad_is_no_member() -> None:
    text = bond_text({"a": "up"}, "IEEE 802.3ad Dynamic link aggregation").replace(
        "Slave queue ID: 0\n",
        "Slave queue ID: 0\nAggregator ID: 1\ndetails actor lacp pdu:\n    port key: 0\n",
    )
    assert bond("bond0", text).members == ("a",)


def test_odd_text_is_a_bond_of_unknown_mode() -> None:
    assert bond("bond0", "").mode == "unknown"


def test_a_bond_that_vanished_while_it_was_read_is_none(document: Made) -> None:
    state = state_of({"fabric": document["fabric"] | {"bonds": {"bond0": None}}})
    assert isinstance(state.fabric, Fabric)
    assert state.fabric.bonds == {}


# One exec a host, of this very program


def test_a_host_is_read_once_until_it_changes(document: Made) -> None:
    job = made_job(cluster(), [document, document], None, ())
    host = job.hosts[0]
    assert job.read(host) is job.read(host)
    assert len(commands(host)) == 1
    job.changed(host)
    job.read(host)
    assert len(commands(host)) == 2
    assert commands(job.hosts[1]) == []


def test_what_was_read_while_planning_is_read_again_while_executing(document: Made) -> None:
    job = made_job(cluster(), [document, document], None, ())
    job.read(job.hosts[0])
    job.state.is_executing = True
    job.read(job.hosts[0])
    assert len(commands(job.hosts[0])) == 2


@pytest.mark.parametrize("installed", ["absent", "same", "linked", "older"])
def test_the_command_runs_this_program_whatever_is_installed(
    tmp_path: Path, installed: str
) -> None:
    """The shell text itself, run here: the installed copy when it is this one, else the sent."""
    ask = Ask(units=(), files=(f"{tmp_path}/it's here",))
    (tmp_path / "it's here").write_bytes(b"x")
    home = tmp_path / "spark_host"
    if installed != "absent":
        folder = tmp_path / "spark_host.1" if installed == "linked" else home
        shutil.copytree(PROGRAM, folder)
        if installed == "linked":
            home.symlink_to(folder.name)
        sha256 = "0" * 64 if installed == "older" else program_sha256()
        (home / "SHA256").write_text(f"{sha256}\n")
        if installed == "older":
            (home / "__main__.py").write_text("raise SystemExit('the old one')\n")
    command = Snapshot().command(ask).get_raw_value()
    command = command.replace("/usr/local/lib/spark-converge/spark_host", str(home))
    done = subprocess.run(
        ["sh", "-c", command],
        input=program_archive(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    state = Snapshot().process(done.stdout.splitlines())
    assert not isinstance(state.files, Unknown), done.stderr
    (own,) = state.files.values()
    assert own is not None
    assert own.data == b"x"
    assert [p for p in tmp_path.iterdir() if p.name.startswith("tmp.")] == []


def test_a_host_without_python3_is_named_so(tmp_path: Path) -> None:
    """With the tools that the shell text needs and no python3 on the path."""
    for tool in ("cat", "base64", "mktemp", "rm"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    done = subprocess.run(
        ["/bin/sh", "-c", Snapshot().command(Ask()).get_raw_value()],
        input=program_archive(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    state = Snapshot().process(done.stdout.splitlines())
    assert set(state.unknowns()) == set(PARTS)
    assert state.boot == Unknown("python3 is not installed")


def test_a_snapshot_that_failed_as_a_whole_says_why() -> None:
    answer = {"ok": False, "message": "OSError: No space left on device"}
    state = Snapshot().process([json.dumps(answer), END])
    assert set(state.unknowns()) == set(PARTS)
    assert state.boot == Unknown("OSError: No space left on device")


def test_a_password_that_nobody_can_type_is_an_unread_host(
    document: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = made_job(cluster(), [document, document], None, ())
    asked = []

    def no_terminal(*_: Any, **__: Any) -> None:
        asked.append(1)
        raise EOFError

    monkeypatch.setattr(FakeConnector, "run_shell_command", no_terminal)
    state = job.read(job.hosts[0])
    assert set(state.unknowns()) == set(PARTS)
    assert str(state.boot) == (
        "unknown (sudo asks for a password and there is no terminal; "
        "use NOPASSWD or run it from a terminal)"
    )
    job.read(job.hosts[0])
    assert asked == [1]
