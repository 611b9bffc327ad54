"""Refusals that keep the owner from being locked out, without any network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from facts.state import state_of
from inventory.schema import Cluster
from operations.network import reach
from operations.network.reach import Resolved, graphical_session, name_complaints
from tests.plan.made_pair import Snapshot, bare, cluster, cluster_data, dirty, locked
from tests.unit.network.test_netplan import complaints as fabric_complaints
from tests.unit.on_host import module


def nobody(_name: str) -> Resolved | None:
    return None


def with_config(tmp_path: Path, text: str, address: str = "spark-head") -> Cluster:
    path = tmp_path / "ssh_config"
    path.write_text(text)
    data = cluster_data(ssh={"user": "ci", "config_file": str(path)})
    data["head"] = {**data["head"], "address": address}
    return Cluster.model_validate(data)


def test_plain_addresses_are_fine_and_nobody_is_asked() -> None:
    for node in cluster().nodes:
        assert list(name_complaints(cluster(), node, nobody)) == []


def test_a_host_name_of_the_ssh_config_that_avahi_answers_for_is_refused(tmp_path: Path) -> None:
    made = with_config(tmp_path, "Host spark-*\n  HostName spark-1f.local\n")
    answer = Resolved("spark-1f.local", ("fe80::1%eth0", "192.0.2.11"))
    (said,) = name_complaints(made, made.head, lambda _: answer)
    assert said.startswith(f"spark1: spark-1f.local found (HostName in {tmp_path}/ssh_config);")
    assert "NVIDIA Sync" in said
    assert said.endswith("write its address instead, 192.0.2.11")
    (said,) = name_complaints(made, made.head, nobody)
    assert said.endswith("write its address instead")


def test_the_owners_own_ssh_config_counts_when_the_file_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host spark-head\n  HostName SPARK.Local.\n")
    made = with_config(tmp_path, "")
    made = made.model_copy(update={"ssh": made.ssh.model_copy(update={"config_file": None})})
    (said,) = name_complaints(made, made.head, nobody)
    assert f"SPARK.Local. found (HostName in {tmp_path}/.ssh/config)" in said


def test_a_plain_name_that_resolves_to_one_in_local_is_refused(tmp_path: Path) -> None:
    made = with_config(tmp_path, "")
    answer = Resolved("spark-head.local", ("192.0.2.11",))
    (said,) = name_complaints(made, made.head, lambda _: answer)
    assert "spark-head, which is spark-head.local, found (address in the owner's file)" in said
    fine = Resolved("spark-head.example.org", ("192.0.2.11",))
    assert list(name_complaints(made, made.head, lambda _: fine)) == []


def test_a_jump_host_in_local_is_refused(tmp_path: Path) -> None:
    made = with_config(
        tmp_path,
        "Host spark-head\n  HostName 192.0.2.11\n  ProxyJump me@gate:2222\n"
        "Host gate\n  HostName gate.local\n",
    )
    (said,) = name_complaints(made, made.head, nobody)
    assert "gate.local found (ProxyJump in " in said


def test_an_ssh_config_that_leads_into_the_fabric_is_refused(tmp_path: Path) -> None:
    made = with_config(tmp_path, "Host spark-head\n  HostName 192.168.100.1\n")
    (said,) = name_complaints(made, made.head, nobody)
    assert "which is 192.168.100.1 in the fabric 192.168.100.0/24" in said
    by_name = with_config(tmp_path, "Host spark-head\n  HostName fast.example.org\n")
    answer = Resolved("fast.example.org", ("192.168.100.1",))
    (said,) = name_complaints(by_name, by_name.head, lambda _: answer)
    assert "connect to the management address" in said


def test_an_ssh_config_that_cannot_be_read_is_left_to_the_connection(tmp_path: Path) -> None:
    made = with_config(tmp_path, "Host spark-head\nnonsense\n")
    assert list(name_complaints(made, made.head, nobody)) == []


def found(tmp_path: Path, **changes: Any) -> Snapshot:
    return bare(cluster(), 0, locked("lab", tmp_path), locked("dsf-lab", tmp_path)) | changes


def wifi(**changes: Any) -> dict[str, Any]:
    one = {"device": "wlP9s9", "name": "Home net", "uuid": "u", "users": "", "secret_flags": [0]}
    return {"wifi": [one | changes]}


@pytest.mark.parametrize(
    "change", [{"secret_flags": [1]}, {"secret_flags": [2]}, {"users": "user:me"}]
)
def test_a_wifi_secret_of_a_users_session_is_refused_where_the_way_in_rides_on_it(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    snapshot = found(tmp_path, reach=wifi(**change))
    node = cluster().head
    assert list(reach.wifi_complaints(node, state_of(snapshot))) == [], "it carries nothing here"
    snapshot["fabric"]["default_interfaces"] = ["wlP9s9"]
    (said,) = reach.wifi_complaints(node, state_of(snapshot))
    assert "nmcli --ask connection modify 'Home net' connection.permissions ''" in said
    snapshot["reach"] = wifi()
    assert list(reach.wifi_complaints(node, state_of(snapshot))) == [], "kept with the system"


def proc(tmp_path: Path, *processes: tuple[int, str, int, bytes]) -> Path:
    for pid, name, parent, environ in processes:
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(name + "\n")
        (folder / "stat").write_text(f"{pid} (a) b) S {parent} 1 1\n")
        (folder / "environ").write_bytes(environ)
    return tmp_path / "proc"


def test_a_run_from_a_terminal_of_the_desktop_descends_from_it(tmp_path: Path) -> None:
    made = proc(
        tmp_path,
        (9, "pyinfra", 8, b"PATH=/bin\0"),
        (8, "sudo", 7, b""),
        (7, "bash", 6, b"TERM=x\0XDG_SESSION_TYPE=wayland\0"),
        (6, "systemd", 1, b""),
        (5, "bash", 4, b"XDG_SESSION_TYPE=tty\0"),
        (4, "gnome-session-b", 1, b""),
        (3, "bash", 2, b"XDG_SESSION_TYPE=tty\0"),
        (2, "sshd", 1, b""),
    )
    assert graphical_session(9, made) == "a wayland session, by process 7"
    assert graphical_session(5, made) == "gnome-session-b, process 4"
    assert graphical_session(3, made) is None
    assert graphical_session(77, made) is None


def test_only_a_run_on_the_host_itself_that_ends_its_desktop_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "graphical_session", lambda _: "gnome-shell, process 4")
    data = cluster_data()
    data["head"] = {**data["head"], "address": "local"}
    made = Cluster.model_validate(data)
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    desktop = state_of(dirty(made, 0, lab, dsf))
    (said,) = reach.session_complaints(made.head, desktop)
    assert "started from its desktop (gnome-shell, process 4)" in said
    assert list(reach.session_complaints(made.workers[0], desktop)) == [], "not this machine"
    assert list(reach.session_complaints(made.head, state_of(bare(made, 0, lab, dsf)))) == []


def test_answers_that_leave_over_the_fabric_are_refused(tmp_path: Path) -> None:
    snapshot = found(tmp_path)
    snapshot["fabric"] |= {"control_address": "10.0.2.11", "control_device": "bond0"}
    state: Any = state_of(snapshot).fabric
    (said,) = fabric_complaints(cluster(), cluster().head, state)
    assert "leave over the fabric (bond0)" in said
    snapshot["fabric"]["control_device"] = "enP7s7"
    fine: Any = state_of(snapshot).fabric
    assert fabric_complaints(cluster(), cluster().head, fine) == []


def test_nmcli_is_asked_for_the_active_connection_of_wireless_devices_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_host = module("network.reach")
    said = {
        ("--version",): "nmcli tool\n",
        ("-g", "GENERAL.CON-UUID", "device", "show", "wlP9s9"): "7-7\n",
        ("-t", "-f", on_host.ASKED, "connection", "show", "uuid", "7-7"): (
            "connection.id:Home: net\nconnection.permissions:user:me\n"
            "802-11-wireless-security.psk-flags:1 (agent-owned)\n"
        ),
    }
    monkeypatch.setattr(on_host, "run", lambda words: (0, said[tuple(words[1:])], ""))
    monkeypatch.setattr(on_host, "wireless", lambda: ["wlP9s9"])
    assert on_host.section({}) == {
        "wifi": [
            {
                "device": "wlP9s9",
                "name": "Home: net",
                "uuid": "7-7",
                "users": "user:me",
                "secret_flags": [1],
            }
        ]
    }
    monkeypatch.setattr(on_host, "wireless", list)
    monkeypatch.setattr(on_host, "run", lambda _: pytest.fail("nothing to ask"))
    assert on_host.section({}) == {"wifi": []}


@pytest.mark.parametrize("status", [8, 10])
def test_a_networkmanager_that_does_not_run_has_no_connection(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A Wi-Fi card and no NetworkManager: many servers. What cannot be read is another thing."""
    on_host = module("network.reach")
    monkeypatch.setattr(on_host, "wireless", lambda: ["wlP9s9"])

    def answers(code: int) -> None:
        monkeypatch.setattr(
            on_host, "run", lambda words: (0 if words[1:] == ["--version"] else code, "", "Error")
        )

    answers(status)
    assert on_host.section({}) == {"wifi": []}
    answers(4)
    with pytest.raises(module("run.command").Failed):
        on_host.section({})
