"""The fabric's live links: what counts as a difference, and how they are brought back."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from facts.run.program import PROGRAM
from tests.unit.on_host import module

network = module("network.live")
Links = dict[str, Any]


def link(**changes: Any) -> dict[str, Any]:
    return {
        "kind": None,
        "mode": None,
        "miimon": None,
        "arp_ip_target": None,
        "arp_interval": None,
        "xmit_hash_policy": None,
        "primary": None,
        "mtu": 1500,
        "up": True,
        "master": None,
        "addresses": [],
    } | changes


def bond(**changes: Any) -> dict[str, Any]:
    """As the kernel makes one that nobody told more than its mode."""
    made = {"kind": "bond", "mode": "active-backup", "miimon": 0, "arp_interval": 0}
    return link(**made, xmit_hash_policy="layer2") | changes


# As the lab's `fresh`, and as `prepare` leaves it.
FRESH: Links = {
    "bond0": None,
    "enp1s0f0np0": link(addresses=["192.168.100.1/24"]),
    "enp1s0f1np1": link(),
}
BONDED: Links = {
    "bond0": bond(mtu=9000, addresses=["192.168.100.1/24"]),
    "enp1s0f0np0": link(mtu=9000, master="bond0"),
    "enp1s0f1np1": link(mtu=9000, master="bond0"),
}


def test_the_same_links_do_not_differ() -> None:
    assert network.differences(FRESH, copy.deepcopy(FRESH)) == []


def test_d15_a_bond_that_stays_behind_is_a_difference_with_all_that_hangs_on_it() -> None:
    said = network.differences(FRESH, BONDED)
    assert said[0] == "bond0 exists"
    assert "enp1s0f1np1: master bond0, was None" in said
    assert "enp1s0f0np0: mtu 9000, was 1500" in said


def test_a_bond_that_was_there_and_is_gone_is_a_difference() -> None:
    assert network.differences({"bond0": BONDED["bond0"]}, {"bond0": None}) == [
        "bond0 does not exist"
    ]


@pytest.mark.parametrize("was", [None, link()])
def test_a_card_that_came_or_went_is_none(was: Any) -> None:
    assert network.differences({"enp1s0f0np0": was}, {"enp1s0f0np0": None if was else link()}) == []


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        ({"local": "192.168.100.1", "prefixlen": 24, "scope": "global"}, True),
        ({"local": "fd00::1", "prefixlen": 64, "scope": "global"}, True),
        ({"local": "fd00::5", "prefixlen": 64, "scope": "global", "dynamic": True}, False),
        ({"local": "fe80::1", "prefixlen": 64, "scope": "link"}, False),
        ({"local": "169.254.7.7", "prefixlen": 16, "scope": "global"}, False),
        ({"prefixlen": 24, "scope": "global"}, False),
    ],
)
def test_only_configured_addresses_count(one: dict[str, Any], kept: bool) -> None:
    assert network.kept_address(one) is kept


class Kernel:
    """`ip` and `netplan` for a set of links; netplan gives nothing back by itself, as in D15."""

    modes = ("balance-rr", "active-backup")

    def __init__(self, links: Links, netplan: int = 0) -> None:
        self.links = copy.deepcopy(links)
        self.netplan = netplan
        self.said: list[str] = []

    def run(self, argv: list[str], **_words: Any) -> tuple[int, str, str]:  # noqa: PLR0912
        self.said.append(" ".join(argv))
        if argv[0] == "nmcli":
            return 0, "", ""
        if argv[0] == "netplan":
            return self.netplan, "", "netplan: it is broken"
        match argv[1:]:
            case ["-d", "-j", "address"]:
                return 0, json.dumps([self.shown(n) for n, one in self.links.items() if one]), ""
            case ["link", "delete", name]:
                self.links[name] = None
                for other in self.links.values():
                    if other and other["master"] == name:
                        other["master"] = None
                        other["up"] = False  # the bonding driver closes a freed member
            case ["link", "add", name, "type", "bond", "mode", mode] if mode in self.modes:
                self.links[name] = bond(mode=mode, up=False)
            case ["link", "set", name, "type", "bond", option, value]:
                return self.tell(self.links[name], option, value)
            case ["link", "set", name, "mtu", mtu]:
                self.links[name]["mtu"] = int(mtu)
            case ["link", "set", name, "nomaster"]:
                self.links[name]["master"] = None
            case ["link", "set", name, "master", master] if not self.links[name]["up"]:
                self.links[name]["master"] = master
            case ["link", "set", name, "up" | "down" as word]:
                self.links[name]["up"] = word == "up"
            case ["address", "add", address, "dev", name]:
                self.links[name]["addresses"].append(address)
            case ["address", "delete", address, "dev", name]:
                self.links[name]["addresses"].remove(address)
            case words:
                return 1, "", f"unexpected: {words}"
        return 0, "", ""

    def tell(self, one: dict[str, Any], option: str, value: str) -> tuple[int, str, str]:
        """As drivers/net/bonding/bond_options.c takes them."""
        if option == "lacp_rate" and (one["mode"] != "802.3ad" or one["up"]):
            return 2, "", "RTNETLINK answers: Operation not permitted"
        if option == "primary" and self.links.get(value) is None:
            return 255, "", f'Cannot find device "{value}"'
        number = option in ("miimon", "arp_interval")
        if number and value != "0":
            one["arp_interval" if option == "miimon" else "miimon"] = 0
        key = "ad_lacp_rate" if option == "lacp_rate" else option
        listed = value.split(",") if option == "arp_ip_target" else value
        one[key] = int(value) if number else listed
        return 0, "", ""

    def shown(self, name: str) -> dict[str, Any]:
        one = self.links[name]
        return {
            "ifname": name,
            "mtu": one["mtu"],
            "flags": ["UP"] if one["up"] else [],
            "master": one["master"],
            "linkinfo": {
                "info_kind": one["kind"],
                "info_data": {
                    key: one[key]
                    for key in ("mode", *network.OPTIONS)
                    if one.get(key) is not None
                    # the kernel names no primary that is not a member
                    and (key != "primary" or (self.links[one[key]] or {})["master"] == name)
                },
            },
            "addr_info": [
                {"local": a.split("/")[0], "prefixlen": int(a.split("/")[1]), "scope": "global"}
                for a in one["addresses"]
            ],
        }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds pass by being slept."""
    now = [0.0]
    monkeypatch.setattr(network.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(network.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))


def restored(monkeypatch: pytest.MonkeyPatch, was: Links, now: Links, netplan: int = 0) -> Kernel:
    kernel = Kernel(now, netplan)
    monkeypatch.setattr(network, "run", kernel.run)
    network.restore(was)
    return kernel


def test_d15_the_bond_goes_its_members_are_free_and_have_their_mtu_and_address(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    kernel = restored(monkeypatch, FRESH, BONDED)
    assert kernel.links == FRESH
    assert kernel.said.count("netplan apply") == 1
    assert kernel.said.index("ip link delete bond0") < kernel.said.index("netplan apply")


def test_a_host_without_netplan_is_restored_all_the_same(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    assert restored(monkeypatch, FRESH, BONDED, netplan=127).links == FRESH


def test_a_failing_netplan_is_a_sentence(monkeypatch: pytest.MonkeyPatch, clock: None) -> None:
    with pytest.raises(module("run.command").Failed, match="netplan apply: netplan: it is broken"):
        restored(monkeypatch, FRESH, BONDED, netplan=1)


def test_links_come_back_also_where_netplan_fails(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    kernel = Kernel(BONDED, netplan=1)
    monkeypatch.setattr(network, "run", kernel.run)
    with pytest.raises(module("run.command").Failed, match="it is broken"):
        network.restore(FRESH)
    assert kernel.links == FRESH


def test_a_link_that_goes_by_itself_keeps_nothing_from_coming_back(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    """A VLAN goes with the bond below it, before its own turn comes."""
    kernel = Kernel({**BONDED, "vlan7": link(kind="vlan")})

    def run(argv: list[str], **words: Any) -> tuple[int, str, str]:
        if argv == ["ip", "link", "delete", "vlan7"]:
            return 1, "", 'Cannot find device "vlan7"'
        if argv == ["ip", "link", "delete", "bond0"]:
            kernel.links["vlan7"] = None
        return kernel.run(argv, **words)

    monkeypatch.setattr(network, "run", run)
    network.restore({**FRESH, "vlan7": None})
    assert kernel.links == {**FRESH, "vlan7": None}


def test_a_bond_that_was_made_over_and_does_not_come_back_is_named(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    was = {"bond0": BONDED["bond0"] | {"mode": "802.3ad"}}
    with pytest.raises(
        module("run.command").Failed, match=r"ip link add bond0 type bond mode 802\.3ad"
    ):
        restored(monkeypatch, was, {"bond0": BONDED["bond0"]})


def test_d13_a_bond_that_no_file_names_is_made_again_with_its_members(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    made = bond(mode="balance-rr", miimon=250, addresses=["10.9.0.1/24"])
    was = {"bond0": made, "enp1s0f0np0": link(master="bond0"), "enp1s0f1np1": link(master="bond0")}
    assert restored(monkeypatch, was, BONDED).links == was


MEMBERS: Links = {name: link(master="bond0") for name in ("enp1s0f0np0", "enp1s0f1np1")}
LACP = {"mode": "802.3ad", "ad_lacp_rate": "slow", "miimon": 100}


@pytest.mark.parametrize(
    ("then", "here"),
    [
        ({"xmit_hash_policy": "layer2"}, {"xmit_hash_policy": "layer3+4"}),
        ({"xmit_hash_policy": "layer2+3", "miimon": 50}, {"miimon": 100}),
        ({"primary": "enp1s0f1np1"}, {"primary": "enp1s0f0np0"}),
        ({"primary": "enp1s0f1np1"}, {}),
        ({}, {"primary": "enp1s0f0np0"}),
        ({**LACP, "ad_lacp_rate": "fast"}, LACP),
        ({"arp_interval": 100, "arp_ip_target": ["10.9.0.2", "10.9.0.3"]}, {"miimon": 100}),
        ({"miimon": 100}, {"arp_interval": 100, "arp_ip_target": ["10.9.0.2"]}),
    ],
    ids=lambda given: " ".join(f"{k}={v}" for k, v in given.items()) or "nothing said",
)
def test_a_bond_has_its_options_again_though_networkd_changes_none_of_one_that_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: None,
    then: dict[str, Any],
    here: dict[str, Any],
) -> None:
    """systemd issue 36406: undo said success with another hash policy or primary than found."""
    was, now = {"bond0": bond(**then), **MEMBERS}, {"bond0": bond(**here), **MEMBERS}
    told = network.differences(was, now)
    assert {said.split()[1] for said in told} >= {key for key in then if then[key] != here.get(key)}
    kernel = Kernel(now)
    sysfs = tmp_path / "bond0"
    monkeypatch.setattr(network, "PRIMARY", str(tmp_path / "{}"))

    def run(argv: list[str], **words: Any) -> tuple[int, str, str]:
        if sysfs.exists() and sysfs.read_text() == "\n":
            kernel.links["bond0"]["primary"] = None
        return kernel.run(argv, **words)

    monkeypatch.setattr(network, "run", run)
    network.restore(was)
    assert "ip link delete bond0" not in kernel.said
    if not then.get("arp_interval"):  # targets that nobody asks may stay
        kernel.links["bond0"]["arp_ip_target"] = None
    assert kernel.links == was


def test_an_option_that_cannot_be_set_is_named_and_keeps_no_address_away(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    was = {"bond0": bond(primary="gone", addresses=["10.9.0.1/24"]), "gone": None}
    kernel = Kernel({"bond0": bond(), "gone": None})
    monkeypatch.setattr(network, "run", kernel.run)
    with pytest.raises(module("run.command").Failed, match="bond0: primary None, was gone"):
        network.restore(was)
    assert kernel.links["bond0"]["addresses"] == ["10.9.0.1/24"]


def test_a_bond_that_the_version_before_kept_is_compared_by_what_it_kept() -> None:
    kept = {key: bond()[key] for key in ("kind", "mode", "miimon", "mtu", "up", "master")}
    assert (
        network.differences({"bond0": kept}, {"bond0": bond(xmit_hash_policy="vlan+srcmac")}) == []
    )


def test_an_address_that_networkd_sets_is_awaited_before_it_is_set_by_hand(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    kernel = restored(monkeypatch, FRESH, BONDED)
    asked = [said for said in kernel.said if said == "ip -d -j address"]
    assert len(asked) > network.SETTLE_S
    assert kernel.said[-2].startswith("ip address add 192.168.100.1/24")


def test_networkmanager_gets_its_devices_back_before_the_links_are_compared(
    monkeypatch: pytest.MonkeyPatch, clock: None
) -> None:
    kernel = Kernel(BONDED)
    monkeypatch.setattr(network, "run", kernel.run)
    monkeypatch.setattr(network.manager, "run", kernel.run)
    network.restore(FRESH, ["enp1s0f1np1"])
    given = "nmcli device set enp1s0f1np1 managed yes"
    assert kernel.said.count(given) == 1
    assert kernel.said.index("netplan apply") < kernel.said.index(given)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [((0, "yes\n", ""), "same"), ((0, "no\n", ""), "restore"), ((10, "", "no device"), "gone"),
     ((127, "", "nmcli: not installed"), "gone")],
)  # fmt: skip
def test_a_device_that_networkmanager_had_is_one_to_give_back(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, str], verdict: str
) -> None:
    monkeypatch.setattr(network.manager, "run", lambda _: answer)
    entry = {"name": "managed.enp1s0f1np1", "value": "yes", "ours": ["no"]}
    ((_, found),) = restore.look([{"kind": "settings", **entry}])
    assert (found["name"], found["verdict"]) == ("NetworkManager's hold on enp1s0f1np1", verdict)


restore, kept = module("undo.restore"), module("network.kept")


def fabric(monkeypatch: pytest.MonkeyPatch, now: Links, *verdicts: tuple[str, str]) -> str:
    monkeypatch.setattr(network, "run", Kernel(now).run)
    links = [{"name": f"link.{name}", "value": json.dumps(was)} for name, was in FRESH.items()]
    before = [({"path": f"/etc/netplan/{name}"}, {"verdict": word}) for name, word in verdicts]
    found = kept.read(links, before)
    words = {kept.look(entry, found)["verdict"] for entry in links}
    (word,) = words - {"same"} or words
    return str(word)


def test_links_stay_as_they_are_while_an_edited_netplan_file_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, old = ("60-spark-converge.yaml", "edited"), ("40-cx7.yaml", "restore")
    assert fabric(monkeypatch, BONDED, ours, old) == "edited"
    assert fabric(monkeypatch, BONDED, old) == "restore"
    assert fabric(monkeypatch, FRESH, ours) == "same"


class Trials(Kernel):
    """A host whose trial of the fabric makes the bond; NetworkManager has all of its devices."""

    def of_the_trial(self, argv: list[str], **words: Any) -> tuple[int, str, str]:
        if argv[0] in ("systemctl", "systemd-run", "nmcli"):
            return 0, "yes\n" if argv[0] == "nmcli" else "", ""
        if argv[:2] == ["netplan", "apply"]:
            self.links = copy.deepcopy(BONDED)
        return self.run(argv, **words)


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: None) -> Trials:
    """A trial has begun: nothing is applied yet."""
    kernel, trial = Trials(FRESH), kept.fabric
    for name in ("STATE", "TRIAL", "ETC", "VENDOR"):
        monkeypatch.setattr(trial, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(restore.journal, "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(restore.links, "FOLDERS", ())
    monkeypatch.setattr(network, "run", kernel.run)
    for each in (trial, network.manager):
        monkeypatch.setattr(each, "run", kernel.of_the_trial)
    plan = {
        "files": {"60-new.yaml": "network: {}\n"},
        "shadow": [],
        "delete_links": [],
        "created_links": ["bond0"],
        "devices": [*FRESH],
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(plan)))
    assert trial.start(5) == {}
    return kernel


def named() -> set[str]:
    return {entry["name"] for entry in restore.everything() if entry["kind"] == "settings"}


def test_of_a_reverted_trial_no_undo_knows_a_link_that_the_owner_makes_later(
    trials: Trials,
) -> None:
    assert "link.bond0" in named()
    assert kept.fabric.apply(5)["ok"] is False
    assert trials.links == FRESH
    assert named() == set()
    trials.links = copy.deepcopy(BONDED)
    assert restore.look(restore.everything()) == []


def test_a_trial_that_did_not_get_back_keeps_what_it_found(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials.netplan = 1
    monkeypatch.setattr(network, "LIMIT_S", 0)
    assert "going back: " in kept.fabric.apply(5)["message"]
    assert {"link.bond0", "managed.enp1s0f1np1"} <= named()


def test_a_confirmation_that_comes_while_the_way_back_is_taken_is_refused(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would put the new files in place beside the old links."""
    trial, answers, real = kept.fabric, [], network.restore

    def going_back(*words: Any) -> None:
        answers.append(trial.confirm())
        real(*words)

    monkeypatch.setattr(network, "restore", going_back)
    assert trial.apply(5)["ok"] is False
    (answer,) = answers
    assert answer["ok"] is False
    assert answer["message"].startswith("nothing to confirm: reverting")
    assert trial.status()["phase"] == "reverted"
    assert not (Path(trial.ETC) / "60-new.yaml").exists()


def test_a_trial_that_cannot_begin_leaves_no_file_that_a_later_apply_would_take(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = kept.fabric

    def refused(*_: Any) -> None:
        raise module("run.command").Failed("another spark-host has been at work")

    monkeypatch.setattr(trial, "keep", refused)
    answer = trial.apply(5)
    assert answer == {"ok": False, "message": "another spark-host has been at work"}
    assert trial.status()["phase"] == "failed"
    assert not (Path(trial.TRIAL) / "60-new.yaml").exists()
    assert trials.links == FRESH


def test_what_an_earlier_change_found_outlives_the_reverted_trial(trials: Trials) -> None:
    plan = kept.fabric.load_plan()
    plan["first"].remove("link.bond0")
    (Path(kept.fabric.STATE) / "plan").write_text(json.dumps(plan))
    kept.fabric.apply(5)
    assert named() == {"link.bond0"}


def test_of_a_trial_that_a_power_cut_ended_nothing_is_left_to_undo(trials: Trials) -> None:
    assert "link.bond0" in named()
    shutil.rmtree(kept.fabric.STATE)  # below /run
    assert named() == set()
    restore.journal.put(
        f"{kept.fabric.ETC}/60-new.yaml", 0o600, (os.getuid(), os.getgid()), b""
    )  # a confirmed one
    assert "link.bond0" in named()


REAL = """
import sys
sys.path.insert(0, {program!r})
from network import live as network
real = network.run
# Never the netplan of the machine that runs this test: it is not held by the namespace.
network.run = lambda argv, **more: (127, "", "") if argv[0] == "netplan" else real(argv, **more)
names = ["v0", "v1", "bond0"]
network.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
network.ip("address", "add", "192.168.100.1/24", "dev", "v0")
network.ip("link", "set", "v0", "up")
was = network.live(names)
network.ip("link", "add", "bond0", "type", "veth", "peer", "name", "other")
network.ip("address", "delete", "192.168.100.1/24", "dev", "v0")
network.ip("address", "add", "192.168.100.1/24", "dev", "bond0")
for name in ("v0", "v1"):
    network.ip("link", "set", name, "mtu", "9000")
network.ip("link", "set", "v0", "down")
assert network.differences(was, network.live(names))
network.SETTLE_S = 0
network.restore(was)
assert network.live(names) == was, network.live(names)
print("as it was")
"""
SPACE = ["unshare", "--map-root-user", "--net"]


def test_links_of_a_real_kernel_come_back() -> None:
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("no unshare or ip on this machine")
    able = subprocess.run(
        [*SPACE, "ip", "link", "add", "v0", "type", "veth"], capture_output=True, check=False
    )
    if able.returncode:
        pytest.skip("no network namespaces for this user")
    done = subprocess.run(
        [*SPACE, "env", "PATH=/usr/sbin:/sbin:/usr/bin:/bin", "python3", "-I", "-c",
         REAL.format(program=str(PROGRAM))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "as it was\n", done.stderr
