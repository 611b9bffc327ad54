"""What must not be begun: exit status 1, every reason at once, and nothing changed anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stacks.definition import load
from tests.plan import made_pair
from tests.plan.conftest import Pair, Run
from tests.plan.made_pair import container, file_of, install

Made = Callable[..., Pair]

RANKS = "spark_host ranks"
# What spark-host says where a rank goes down as it should.
ENDS = {
    "spark_host ranks save ": {"folder": "/var/lib/spark-converge/saved/x", "unread": []},
    "spark_host ranks end ": {"ok": True, "left": [], "message": ""},
    "spark_host ranks quiet ": {"back": []},
}

MIXED = """\
network:
  version: 2
  ethernets:
    enP7s7:
      dhcp4: true
    enp1s0f0np0:
      mtu: 9000
"""


def mixed_file(pair: Pair) -> None:
    pair.snapshots[0]["fabric"]["netplan"]["/etc/netplan/01-mgmt.yaml"] = file_of(MIXED)


def stranger(pair: Pair) -> None:
    found = pair.snapshots[1]["containers"]["containers"]
    found.append(container("grafana", "grafana/grafana:12", {}))


def no_schedutil(pair: Pair) -> None:
    for policy in pair.snapshots[1]["cpufreq"]["policies"].values():
        policy["offered"] = ["performance", "powersave"]


def daemon_down(pair: Pair) -> None:
    down = {"unknown": "Failed: Cannot connect to the Docker daemon"}
    pair.snapshots[0] |= {"containers": down, "images": down}


def no_model(pair: Pair) -> None:
    pair.snapshots[1]["shards"]["/srv/models/lab"] = "absent"


def killer(pair: Pair) -> None:
    """Field case F05, on a host without swap."""
    floor = ["-M", str(1450 * 1024)]
    text = '# of the package\nEARLYOOM_ARGS="-M 1484800"\n'
    found = {"name": "earlyoom", "pid": 812, "argv": floor, "text": text, "state": None}
    file = {"file": "/etc/default/earlyoom"}
    pair.snapshots[1]["oom"]["killers"] = [found | file]


def listener(pair: Pair) -> None:
    """Field case H05: a leftover of an engine that was started by hand."""
    pair.snapshots[0]["listeners"]["listeners"].append(made_pair.listener(25000))


def is_refused(run: Run) -> None:
    assert run.status == 1
    assert "Traceback" not in run.err
    assert "pyinfra-debug.log" not in run.err


def executed_nothing(run: Run, *hosts: str) -> None:
    """Only the snapshot was asked for, which reads."""
    assert "Beginning operation run" in run.err
    for host in hosts:
        assert run.acts(host) == []
        assert run.commands(host)


def test_a_name_that_avahi_answers_for_is_refused_beforehand(pair: Made, tmp_path: Path) -> None:
    """Rollback leaves avahi as it is, and is not kept from the old stack by a name."""
    config = tmp_path / "ssh_config"
    config.write_text("Host spark-head\n  HostName spark-head.local\n")
    made = pair(ssh={"user": "ci", "config_file": str(config)})
    made.data["head"] = {**made.data["head"], "address": "spark-head"}
    run = made.run("prepare", "-y", "--debug")
    is_refused(run)
    (said,) = run.refusal()
    assert said.startswith(f"spark1: spark-head.local found (HostName in {config});")
    executed_nothing(run, "spark1", "spark2")
    assert made.plan("rollback_dsf").status == 0


def wifi_of_a_session(pair: Pair) -> None:
    found = pair.snapshots[1]
    found["reach"]["wifi"] = [
        {"device": "wl0", "name": "Home", "uuid": "u", "users": "", "secret_flags": [1]}
    ]
    found["fabric"]["default_interfaces"] = ["wl0"]


CASES: list[tuple[Callable[[Pair], None], list[str]]] = [
    (
        mixed_file,
        [
            "spark1: /etc/netplan/01-mgmt.yaml defines enp1s0f0np0 beside enP7s7; "
            "move these lines into a file of their own:"
        ],
    ),
    (
        stranger,
        [
            "spark2: grafana of no known stack runs and holds memory; stop it, or allow that with "
            "policy.foreign_containers: stop"
        ],
    ),
    (
        no_schedutil,
        [f"spark2: policy{n} offers performance powersave, not schedutil" for n in (0, 1)],
    ),
    (
        daemon_down,
        ["spark1: containers unknown (Failed: Cannot connect to the Docker daemon)"],
    ),
    (
        killer,
        [
            "spark2: earlyoom (pid 812) would end lab: it acts below 1450 MiB available, the "
            "loaded stack leaves about 1400 MiB; lower -M in /etc/default/earlyoom line 2 and "
            "restart earlyoom"
        ],
    ),
    (
        wifi_of_a_session,
        [
            "spark2: its management link wl0 (Home) has its Wi-Fi secret in a user's session, "
            "which ends with the desktop; keep it with the system first: sudo nmcli --ask "
            "connection modify Home connection.permissions '' 802-11-wireless-security.psk-flags 0 "
            "802-11-wireless-security.psk SECRET"
        ],
    ),
    (
        listener,
        [
            "spark1: port 25000 (rendezvous of lab) is held by python3 (pid 4711 of milo); end "
            "that, or give one of the two another port"
        ],
    ),
    (no_model, ["spark2: no model directory /srv/models/lab (model_dir in the owner's file)"]),
]


@pytest.mark.parametrize(("fault", "said"), CASES, ids=[c.__name__ for c, _ in CASES])
def test_each_fault_refuses_the_plan(
    pair: Made, fault: Callable[[Pair], None], said: list[str]
) -> None:
    made = pair()
    fault(made)
    run = made.plan("serve")
    is_refused(run)
    assert run.refusal() == said


def everything(made: Pair) -> list[str]:
    said = []
    for fault, reasons in CASES:
        fault(made)
        said += reasons
    return said


def test_all_faults_are_said_at_once_while_planning(pair: Made) -> None:
    made = pair()
    said = everything(made)
    run = made.plan("serve")
    is_refused(run)
    assert sorted(run.refusal()) == sorted(said)
    assert "6:     enp1s0f0np0:" in run.err
    assert "7:       mtu: 9000" in run.err


def test_all_faults_are_said_at_once_without_a_plan_and_nothing_runs(pair: Made) -> None:
    made = pair()
    said = everything(made)
    run = made.run("serve", "-y", "--debug")
    is_refused(run)
    assert sorted(run.refusal()) == sorted(said)
    executed_nothing(run, "spark1", "spark2")


@pytest.mark.parametrize("deploy", ["serve", "prepare", "stop", "undo", "rollback_dsf"])
def test_a_second_run_is_refused_with_the_name_of_the_first(pair: Made, deploy: str) -> None:
    made = pair()
    holder = {"run": "theirs", "job": "serve", "who": "milo@ops (pid 1)", "origin": "", "age_s": 9}
    made.snapshots[1]["lease"] = {"holder": holder}
    said = "spark2: serve, started by milo@ops (pid 1), is running; last heard of 9 s ago"
    for arguments in (("--dry",), ("-y", "--debug")):
        run = made.run(deploy, *arguments)
        is_refused(run)
        assert said in run.err
    executed_nothing(run, "spark1", "spark2")


def test_prepare_minds_only_what_concerns_the_hosts(pair: Made) -> None:
    made = pair()
    everything(made)
    run = made.plan("prepare")
    is_refused(run)
    assert not any("grafana" in line or "no model directory" in line for line in run.refusal())
    assert len(run.refusal()) == 5


def unread_settings(made: Pair) -> None:
    for part in ("cpufreq", "sysctl", "logind", "oom", "maintenance", "reach", "userunits"):
        made.snapshots[1][part] = {"unknown": "no answer"}


def test_rollback_is_not_kept_back_by_what_it_leaves_as_it_is(pair: Made) -> None:
    """The way back to the old stack changes no network, no clock, no service of the host."""
    made = pair(clocks={"cpu_max_mhz": 6000})
    mixed_file(made)
    no_schedutil(made)
    wifi_of_a_session(made)
    found = made.snapshots[0]["fabric"]
    found["netplan"]["/etc/netplan/02-mgmt.yaml"] = file_of(
        "network: {ethernets: {enP7s7: {addresses: [10.0.2.99/24]}, all: {match: {name: en*}}}}"
    )
    found["default_interfaces"] = ["enp1s0f0np0"]
    assert len(made.plan("prepare").refusal()) > 5
    run = made.plan("rollback_dsf")
    assert run.status == 0, run.err
    unread_settings(made)
    run = made.plan("rollback_dsf")
    assert run.status == 0, run.err


def test_rollback_is_refused_before_a_teardown_where_full_frames_would_not_pass(
    pair: Made,
) -> None:
    """It leaves the fabric as it is, and would find out when the old ranks are down."""
    made = pair()
    made.snapshots[1]["fabric"]["interfaces"]["enp1s0f0np0"]["mtu"] = 9000
    assert made.plan("rollback_dsf").status == 0, "it serves already: nothing is taken down"
    made.snapshots[1]["containers"]["containers"] = []
    run = made.plan("rollback_dsf")
    is_refused(run)
    (said,) = run.refusal()
    assert said.startswith(
        "the MTUs of the fabric differ (spark1 enp1s0f0np0 1500, spark2 enp1s0f0np0 9000)"
    )
    assert made.plan("prepare").status == 0  # which sets them


def test_a_cable_in_another_port_is_refused_before_a_teardown(pair: Made) -> None:
    made = pair()
    for rank, name in enumerate(("enp1s0f1np1", "enp1s0f0np0")):
        made.snapshots[rank]["fabric"]["interfaces"][name]["carrier"] = False
    run = made.plan("serve")
    is_refused(run)
    assert run.refusal()[0].startswith(
        "the only cable is in enp1s0f0np0 of spark1 and on enp1s0f1np1 of spark2"
    )


@pytest.mark.parametrize(
    "part", ["containers", "crontab", "starters", "fabric", "memory", "listeners"]
)
def test_rollback_is_refused_where_what_it_decides_by_could_not_be_read(
    pair: Made, part: str
) -> None:
    made = pair()
    made.snapshots[1][part] = {"unknown": "no answer"}
    run = made.plan("rollback_dsf")
    is_refused(run)
    assert f"spark2: {part} unknown (no answer)" in run.refusal()


@pytest.mark.parametrize("arguments", [("--dry",), ("-y", "--debug")])
def test_an_unlocked_stack_is_not_served(pair: Made, arguments: tuple[str, ...]) -> None:
    made = pair()
    for snapshot in made.snapshots:  # 128 GB, as a Spark has
        snapshot["memory"]["meminfo_kib"]["MemTotal"] = 128 * 1000 * 1000
        snapshot["boot"]["machine"] = "aarch64"
    run = made.run("serve", *arguments, "--data", "stack=glm53-sglang-nvfp4")
    is_refused(run)
    (said,) = run.refusal()
    assert said.startswith("unlocked: ")
    assert "files/stacks/glm53-sglang-nvfp4.lock.yaml" in said
    if "-y" in arguments:
        executed_nothing(run, "spark1", "spark2")


def test_prepare_says_what_it_passes_over_of_an_unlocked_stack(pair: Made) -> None:
    run = pair().plan("prepare", "--data", "stack=glm53-sglang-nvfp4")
    assert run.status == 0, run.err
    told = [ln for ln in run.err.splitlines() if "passed over: " in ln]
    gaps = load("glm53-sglang-nvfp4").unlocked
    assert gaps
    for gap in gaps:
        assert sum(gap in line for line in told) == 2, gap  # on each host


def test_a_stack_that_is_not_shipped_is_named_with_those_that_are(pair: Made) -> None:
    run = pair().plan("serve", "--data", "stack=glm99")
    is_refused(run)
    assert "stack 'glm99' found; dsf-0731, dsf-lab, glm53-sglang-nvfp4, lab allowed" in run.err


@pytest.mark.parametrize("deploy", ["serve", "prepare", "rollback_dsf"])
def test_a_host_left_out_by_limit_refuses_the_others_while_planning(
    pair: Made, deploy: str
) -> None:
    run = pair().plan(deploy, "--limit", "@fake/spark1")
    is_refused(run)
    (said,) = run.refusal()
    assert said.startswith("@fake/spark2: left out by --limit or --exclude")


@pytest.mark.parametrize("only", ["spark1", "spark2"])
def test_a_host_left_out_by_limit_refuses_the_others_without_a_plan(pair: Made, only: str) -> None:
    other = {"spark1": "spark2", "spark2": "spark1"}[only]
    run = pair().run("serve", "-y", "--debug", "--limit", f"@fake/{only}")
    is_refused(run)
    assert f"@fake/{other}: left out by --limit or --exclude" in run.err
    assert run.acts(only) == []


@pytest.mark.parametrize("gone", ["spark1", "spark2"])
def test_a_host_that_is_gone_refuses_the_others(pair: Made, gone: str) -> None:
    other = {"spark1": "spark2", "spark2": "spark1"}[gone]
    run = pair().run("serve", "-y", "--debug", gone=gone)
    is_refused(run)
    assert f"{gone}: cannot be reached; nothing was changed on the other hosts" in run.err
    assert run.acts(other) == []


def test_stop_takes_down_what_it_can_reach_and_fails_all_the_same(pair: Made) -> None:
    made = pair()
    install(made.snapshots[1])  # @fake cannot
    made.answers.update(ENDS)
    run = made.run("stop", "-y", "--debug", gone="spark1")
    is_refused(run)
    done = [c for c in run.commands("spark2") if RANKS in c]
    assert [c.split("spark_host ")[1].split()[1] for c in done] == ["save", "end", "quiet"]
    assert "dsf-lab-engine-1" in done[1]
    assert "stop failed: spark1: " in run.err


@pytest.mark.parametrize("gone", ["spark1", "spark2"])
def test_the_plan_of_stop_is_made_for_the_hosts_that_are_left(pair: Made, gone: str) -> None:
    left = {"spark1": "spark2", "spark2": "spark1"}[gone]
    run = pair().plan("stop", gone=gone)
    assert "Traceback" not in run.err
    assert "No container starts by itself" in dict(run.changes)
    assert {host for _, hosts in run.changes for host in hosts} == {left}


def broken_install(made: Pair) -> None:
    """@fake says yes to the installation, but the program is not there afterwards."""


def broken_hold(made: Pair) -> None:
    """The crontab of the head is still armed after it was written."""
    for snapshot in made.snapshots:
        install(snapshot)


@pytest.mark.parametrize("fault", [broken_install, broken_hold])
def test_a_host_that_cannot_be_held_is_taken_down_by_stop_all_the_same(
    pair: Made, fault: Callable[[Pair], None]
) -> None:
    made = pair()
    fault(made)
    made.answers.update(ENDS)
    run = made.run("stop", "-y", "--debug")
    is_refused(run)
    for host in made.names:
        done = [c.split("spark_host ")[1].split()[1] for c in run.commands(host) if RANKS in c]
        assert done == ["save", "end", "quiet"]
    assert "stop failed: @fake/spark" in run.err


def test_an_engine_of_podman_fails_stop_once_all_that_docker_runs_is_down(pair: Made) -> None:
    made = pair()
    for snapshot in made.snapshots:
        install(snapshot)
        snapshot["crontab"]["users"].clear()
    engine = {"name": "dsf-lab-x", "image": "", "user": "milo", "signs": []}
    made.snapshots[0]["containers"]["podman"] = [engine]
    made.answers.update(ENDS)
    run = made.run("stop", "-y", "--debug")
    is_refused(run)
    assert "yours to stop: dsf-lab-x (podman of milo) (of stack dsf-lab): podman stop" in run.err
    for host in made.names:
        done = [c.split("spark_host ")[1].split()[1] for c in run.commands(host) if RANKS in c]
        assert done[:2] == ["save", "end"]


@pytest.mark.parametrize(("words", "watched"), [((), "70"), (("--data", "quiet=5"), "5")])
def test_the_watch_after_a_teardown_is_as_long_as_asked(
    pair: Made, words: tuple[str, ...], watched: str
) -> None:
    made = pair()
    for snapshot in made.snapshots:
        install(snapshot)
        snapshot["crontab"]["users"].clear()
    made.answers.update(ENDS)
    run = made.run("stop", "-y", "--debug", *words)
    for host in made.names:
        (quiet,) = [c for c in run.commands(host) if f"{RANKS} quiet " in c]
        assert f"{RANKS} quiet {watched}" in quiet


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "86401"])
def test_an_odd_length_of_the_watch_is_refused(pair: Made, value: str) -> None:
    run = pair().plan("stop", "--data", f"quiet={value}")
    is_refused(run)
    assert f"quiet={value} found; whole seconds up to 86400 allowed" in run.err


def test_what_came_back_is_named_with_its_likely_origin(pair: Made) -> None:
    """A timer of a package is not ours to hold: it is armed still, and is what did it."""
    made = pair()
    install(made.snapshots[0])
    unit = {
        "scope": "system",
        "uid": 0,
        "name": "spark-ready.service",
        "path": "/usr/lib/systemd/system/spark-ready.service",
        "weight": "starts",
        "direct": False,
        "scripts": ["/opt/ready.sh"],
        "active": "inactive",
        "file_state": "enabled",
        "wanted_by": [],
        "triggers": [],
        "held": False,
    }
    made.snapshots[0]["starters"]["units"] = [unit]
    made.answers.update(ENDS | {"spark_host ranks quiet ": {"back": ["dsf-lab-engine-1"]}})
    run = made.run("stop", "-y", "--debug")
    is_refused(run)
    came = "dsf-lab-engine-1 came back within 70 s of the teardown; likely origin: "
    assert came in run.err
    assert "spark-ready.service (/usr/lib/systemd/system/spark-ready.service is" in run.err


@pytest.mark.parametrize("deploy", ["serve", "verify", "prepare"])
def test_no_name_is_no_stack(pair: Made, deploy: str) -> None:
    run = pair().plan(deploy, "--data", "stack=")
    is_refused(run)
    assert "stack '' found; dsf-0731, dsf-lab, glm53-sglang-nvfp4, lab allowed" in run.err
