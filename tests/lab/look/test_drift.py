"""Each acceptance test fails for its own drift, and for no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from tests.lab.acceptance_run import failing
from tests.running_lab import HOSTS, lab, on, snapshots, ssh_config

pytestmark = pytest.mark.long

HOST = "spark2"
CRONTAB = "/var/spool/cron/crontabs/root"
POLICY = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
LOCK = "lab.lock.yaml"
LOGIND = "/etc/systemd/logind.conf.d/zz-spark-converge.conf"
# The lab has no GPU; this says what GB10's would of a program that holds much through it.
HOG = r"""cat > /usr/local/bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in *query-compute-apps*) echo "$(systemctl show -p MainPID --value hog), 61234";; esac
END
chmod 755 /usr/local/bin/nvidia-smi"""
ROUNDS = 8


@dataclass(frozen=True)
class Drift:
    """test: that must fail, with its parameter; do and undo: shell scripts, run as root on HOST."""

    test: str
    do: str
    undo: str
    parameter: str = ""

    @property
    def name(self) -> str:
        """The failing test as pytest names it."""
        head = f"{self.parameter}-" if self.parameter else ""
        return f"{self.test}[{head}ssh://{HOST}]"


DRIFTS = (
    Drift(
        "test_host_boots_into_the_wanted_target",
        "systemctl set-default --quiet graphical.target",
        "systemctl set-default --quiet multi-user.target",
    ),
    Drift(
        "test_service_is_down_and_nothing_can_start_it",
        "systemctl unmask --quiet colord.service",
        "systemctl mask --quiet colord.service",
        parameter="colord.service",
    ),
    Drift(
        "test_service_is_down_and_nothing_can_start_it",
        "systemctl start avahi-daemon.socket",
        "systemctl stop avahi-daemon.socket avahi-daemon.service",
        parameter="avahi-daemon.service",
    ),
    Drift(
        "test_service_is_down_and_nothing_can_start_it",
        "systemctl enable --quiet bluetooth.service",
        "systemctl disable --quiet bluetooth.service",
        parameter="bluetooth.service",
    ),
    Drift(
        "test_no_display_manager_runs",
        "systemctl unmask --quiet gdm.service; systemctl start gdm.service; "
        "ln -sfn /dev/null /etc/systemd/system/gdm.service; systemctl daemon-reload",
        "systemctl stop gdm.service",
    ),
    Drift(
        "test_desktop_units_of_users_are_masked_for_everybody_with_linger",
        "touch /usr/lib/systemd/user/localsearch-3.service /var/lib/systemd/linger/nvidia",
        "rm /usr/lib/systemd/user/localsearch-3.service /var/lib/systemd/linger/nvidia",
    ),
    Drift(
        "test_update_is_held",
        "systemctl enable --quiet --now apt-daily.timer",
        "systemctl disable --quiet --now apt-daily.timer",
        parameter="apt-daily.timer",
    ),
    Drift(
        "test_needrestart_restarts_nothing",
        "mv /etc/needrestart/conf.d/zz-spark-converge.conf /root/",
        "mv /root/zz-spark-converge.conf /etc/needrestart/conf.d/",
    ),
    Drift(
        "test_every_cpu_policy_runs_under_the_wanted_governor",
        f"echo performance > {POLICY}",
        f"echo schedutil > {POLICY}",
    ),
    Drift(
        "test_nothing_else_can_set_the_governor",
        "systemctl unmask --quiet power-profiles-daemon.service",
        "systemctl mask --quiet power-profiles-daemon.service",
    ),
    Drift(
        "test_governor_is_set_again_at_every_boot",
        "systemctl disable --quiet spark-converge-governor.service",
        "systemctl enable --quiet spark-converge-governor.service",
    ),
    Drift(
        "test_shared_memory_holds_no_segment_of_a_dead_engine",
        "head -c 4096 /dev/zero > /dev/shm/psm_0badcafe",
        "rm /dev/shm/psm_0badcafe",
    ),
    Drift(
        "test_programs_outside_of_docker_leave_the_memory_that_a_bind_wants",
        f"systemd-run --quiet --unit=hog sleep infinity; {HOG}",
        "systemctl stop hog.service; rm /usr/local/bin/nvidia-smi",
    ),
    Drift(
        "test_mtu_is_as_wanted_on_the_fabric_and_its_members",
        "ip link set enp1s0f1np1 mtu 1500",
        "ip link set enp1s0f1np1 mtu 9000",
    ),
    Drift(
        "test_fabric_address_is_on_its_device_and_on_no_other",
        "ip address add 192.168.100.2/32 dev lo",
        "ip address del 192.168.100.2/32 dev lo",
    ),
    Drift(
        "test_netplan_files_of_the_fabric_are_readable_by_root_only",
        "chmod 644 /etc/netplan/60-spark-converge.yaml",
        "chmod 600 /etc/netplan/60-spark-converge.yaml",
    ),
    Drift(
        "test_full_frames_cross_the_fabric_unfragmented",
        "ip route add 192.168.100.1/32 dev bond0 mtu 1500",
        "ip route del 192.168.100.1/32 dev bond0 mtu 1500",
    ),
    Drift(
        "test_nothing_is_there_but_the_wanted_rank",
        "docker create --name stray $(docker inspect --format '{{.Config.Image}}' spark-lab-1) "
        "> /dev/null",
        "docker rm stray > /dev/null",
    ),
    Drift(
        "test_rank_does_not_come_back_by_itself",
        "docker update --restart=always spark-lab-1 > /dev/null",
        "docker update --restart=no spark-lab-1 > /dev/null",
    ),
    Drift(
        "test_kernel_settings_are_as_wanted_now_and_at_boot",
        "sysctl -q -w vm.swappiness=60",
        "sysctl -q -w vm.swappiness=0",
    ),
    Drift(
        "test_logind_leaves_the_segments_of_users_who_log_out",
        f"mv {LOGIND} /run/ && systemctl reload systemd-logind",
        f"mv /run/zz-spark-converge.conf {LOGIND} && systemctl reload systemd-logind",
    ),
    Drift(
        "test_no_armed_cron_line_starts_an_engine",
        f"echo '0 5 31 2 * docker compose -p dsf-lab up -d' >> {CRONTAB}",
        f"sed -i '/^0 5 31 2/d' {CRONTAB}",
    ),
    Drift(
        "test_held_cron_lines_carry_a_dated_tag",
        f"echo '#SPARK-HELD 0 6 31 2 * /usr/local/bin/ready.sh' >> {CRONTAB}",
        f"sed -i '/^#SPARK-HELD 0 6/d' {CRONTAB}",
    ),
    Drift(
        "test_no_timer_starts_an_engine",
        "systemd-run --quiet --unit=again --on-calendar=yearly docker start spark-lab-1",
        "systemctl stop again.timer",
    ),
    Drift(
        "test_no_script_of_a_cron_folder_starts_an_engine",
        "printf '#!/bin/sh\n# docker start spark-lab-1\n' > /etc/cron.monthly/again; "
        "chmod 755 /etc/cron.monthly/again",
        "rm /etc/cron.monthly/again",
    ),
)

# Each drift is in two of the rounds, and no two drifts are in the same two. A test that failed for
# another drift too would fail in a round without its own; so equality in every round shows for each
# test that its own drift makes it fail and no other does, in 8 runs instead of one each.
PLACES = dict(zip(DRIFTS, combinations(range(ROUNDS), 2), strict=False))
assert len(PLACES) == len(DRIFTS)


@contextmanager
def drifted(drifts: list[Drift]) -> Iterator[None]:
    on(HOST, "\n".join(["set -e", *(drift.do for drift in drifts)]))
    try:
        yield
    finally:
        on(HOST, "\n".join(drift.undo for drift in drifts))


@pytest.fixture(scope="module", autouse=True)
def served_pair(request: pytest.FixtureRequest) -> None:
    """The served pair, on which every acceptance test passes (test_serve shows that)."""
    if "served" not in snapshots():
        request.getfixturevalue("first_serve")
    lab("restore", "served")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_each_drift_fails_its_own_test_and_no_other(number: int) -> None:
    drifts = [drift for drift, rounds in PLACES.items() if number in rounds]
    with drifted(drifts):
        assert failing([HOST]) == {drift.name for drift in drifts}


def test_pulled_cable_and_a_lock_that_moved_on_fail_their_own_tests(tmp_path: Path) -> None:
    shutil.copy(Path(ssh_config()).parent / "locks" / LOCK, tmp_path)
    lock = yaml.safe_load((tmp_path / LOCK).read_text())
    lock["image"]["index"] = "sha256:" + "0" * 64
    (tmp_path / LOCK).write_text(yaml.safe_dump(lock))
    lab("cable", "2", "pull")
    try:
        seen = failing([HOST], f"--locks={tmp_path}")
    finally:
        lab("cable", "2", "plug")
    assert seen == {
        f"test_bond_is_up_on_every_wanted_member[ssh://{HOST}]",
        f"test_rank_runs_the_locked_image[ssh://{HOST}]",
    }


def test_empty_answer_fails_the_test_of_the_completion_only() -> None:
    on("spark1", "echo answer-empty > /etc/lab-engine/faults")
    try:
        seen = failing(["spark1"])
    finally:
        on("spark1", "rm /etc/lab-engine/faults")
    assert seen == {"test_head_answers_a_real_completion"}


def test_rank_started_by_itself_fails_the_test_of_the_launch() -> None:
    """Last here: a rank that was started again alone makes the pair useless until a new launch."""
    on(HOST, "docker restart spark-lab-1 > /dev/null")
    try:
        seen = failing(HOSTS, "-k", "launch or wanted_rank or image or come_back")
    finally:
        lab("restore", "served")
    assert seen == {"test_all_ranks_run_since_one_and_the_same_launch"}
