"""Memory on real hosts: kernel settings, segments, the page cache, and who ends processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running_lab import HOSTS, job, lab, on, planned, remove_ranks

pytestmark = pytest.mark.long

SYSCTLS = "/etc/sysctl.d/zz-spark-converge.conf"
LOGIND = "/etc/systemd/logind.conf.d/zz-spark-converge.conf"
REMOVE_IPC = (
    "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 "
    "org.freedesktop.login1.Manager RemoveIPC"
)
LOOK = rf"""
find /etc/sysctl.d /etc/systemd /etc/default -printf '%m %U:%G %y %p %l\n' | sort
find /etc/sysctl.d /etc/systemd /etc/default -type f -exec sha256sum {{}} + | sort
sysctl vm.swappiness
{REMOVE_IPC}
"""
# A process holds psm_live and sem.live (mapped, its descriptors closed); the others are dead.
SEGMENTS = r"""
cd /dev/shm
cat > /run/hold.py <<'END'
import mmap, os, time
maps = []
for name in ("psm_live", "sem.live"):
    fd = os.open("/dev/shm/" + name, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, bytes(4096))
    maps.append(mmap.mmap(fd, 4096))
    os.close(fd)
time.sleep(600)
END
systemd-run --quiet --unit=hold-segments python3 /run/hold.py
for name in psm_dead sem.dead torch_1_2 mp-abc vllm_x PostgreSQL.42 keep.txt; do
    head -c 65536 /dev/zero > $name
done
mkdir -p /run/target && touch /run/target/file && ln -sfn /run/target psm_link
until [ -e sem.live ]; do sleep 0.2; done
"""
HOLDER = r"""
systemd-run --quiet --unit=ollama python3 -c 'x = b"1" * (64 << 20); import time; time.sleep(3600)'
cat > /usr/local/bin/nvidia-smi <<'END'
#!/bin/sh
pid=$(systemctl show -p MainPID --value ollama)
case "$*" in *query-compute-apps*) [ "$pid" = 0 ] || echo "$pid, 61234";; esac
END
chmod 755 /usr/local/bin/nvidia-smi
until [ "$(systemctl show -p MainPID --value ollama)" != 0 ]; do sleep 0.2; done
"""
KEPT = ["PostgreSQL.42", "keep.txt", "psm_link", "psm_live", "sem.live"]


def without_ranks() -> None:
    """`fresh` with nothing running (its watchdog brings the old engine back in a minute)."""
    lab("restore", "fresh")
    remove_ranks()


def test_settings_are_set_lasting_and_given_back(state_home: Path) -> None:
    lab("restore", "fresh")
    before = {host: on(host, LOOK) for host in HOSTS}
    run = job("prepare", state_home)
    assert run.status == 0, run.text
    for host in HOSTS:
        assert on(host, "cat /proc/sys/vm/swappiness").strip() == "0"
        assert on(host, REMOVE_IPC).strip() == "b false"
        # As at the next boot: the value put back by hand is set again by systemd's own program.
        on(host, "sysctl -q -w vm.swappiness=33; /usr/lib/systemd/systemd-sysctl")
        assert on(host, "sysctl -n vm.swappiness").strip() == "0"
    assert planned("prepare", state_home) == []
    on("spark2", "sysctl -q -w vm.swappiness=33; echo 'vm.swappiness=7' > /etc/sysctl.d/zzz.conf")
    again = job("prepare", state_home)
    assert again.status == 0, again.text
    assert again.changed == ["Host | Kernel settings of the engine stacks on spark2"]
    assert "/etc/sysctl.d/zzz.conf sets vm.swappiness to 7" in again.text
    on("spark2", "rm /etc/sysctl.d/zzz.conf")
    stopped = job("stop", state_home)  # undo is refused while the old engine runs
    assert stopped.status == 0, stopped.text
    undone = job("undo", state_home)
    assert undone.status == 0, undone.text
    assert {host: on(host, LOOK) for host in HOSTS} == before


def test_f05_a_killer_above_the_stacks_figure_refuses_the_launch(state_home: Path) -> None:
    without_ranks()
    on(
        "spark2",
        "echo 'EARLYOOM_ARGS=\"-M 1572864 --prefer nothing\"' > /etc/default/earlyoom\n"
        "systemctl start earlyoom",
    )
    run = job("serve", state_home)
    assert run.status == 1
    assert "spark2: earlyoom (pid " in run.text
    assert "would end lab: it acts below 1536 MiB available" in run.text
    assert "lower -M in /etc/default/earlyoom line 1 and restart earlyoom" in run.text
    assert run.changed == []
    assert on("spark2", "systemctl is-active earlyoom").strip() == "active", "not ours to stop"


def test_a_program_outside_of_docker_that_holds_the_memory_refuses_before_any_teardown(
    state_home: Path,
) -> None:
    """The lab has no GPU: what a service holds through it is said by a stub, as GB10 says it."""
    lab("restore", "fresh")
    ids = {host: on(host, "docker ps --no-trunc --format '{{.ID}}'") for host in HOSTS}
    on("spark2", HOLDER)
    run = job("serve", state_home)
    assert run.status == 1
    assert "spark2: at most 0 MiB could be available, lab wants 200 MiB" in run.text
    assert "ollama.service (pid " in run.text
    assert ": sudo systemctl stop ollama.service" in run.text
    assert run.changed == []
    assert {host: on(host, "docker ps --no-trunc --format '{{.ID}}'") for host in HOSTS} == ids
    on("spark2", "systemctl stop ollama.service")
    assert planned("serve", state_home) != []


def test_f01_f09_dead_segments_go_live_and_foreign_ones_stay_and_caches_drop_on_both(
    state_home: Path,
) -> None:
    without_ranks()
    for host in HOSTS:
        on(host, SEGMENTS + "cat /usr/bin/* > /dev/null 2>&1 || true\n")
    run = job("serve", state_home)
    assert run.status == 0, run.text
    figures = run.receipt["figures"]
    for host in HOSTS:
        left = set(on(host, "ls -A /dev/shm").split())
        assert set(KEPT) <= left
        assert not left & {"psm_dead", "sem.dead", "torch_1_2", "mp-abc", "vllm_x"}
        assert on(host, "ls /run/target").split() == ["file"]
        names = {segment["name"] for segment in figures["shm_removed"][host]}
        assert names >= {"psm_dead", "sem.dead", "torch_1_2", "mp-abc", "vllm_x"}
        was, now = figures["memory"][host]["before"], figures["memory"][host]["after"]
        assert now["Cached_kib"] < was["Cached_kib"]
        assert now["MemFree_kib"] > was["MemFree_kib"]
    again = job("serve", state_home)
    assert again.changed == [], "the drop is an act of a launch and no drift"


def test_f03_only_new_kernel_lines_lie_beside_the_logs(state_home: Path) -> None:
    without_ranks()
    line = "NVRM: nvCheckOkFailedNoLog: Out of memory [NV_ERR_NO_MEMORY] (lab, {})"
    for host in HOSTS:
        on(host, f"echo '<3>{line.format('old')}' > /dev/kmsg")
    on("spark1", "echo exit-at-shard=100 > /etc/lab-engine/faults")
    on(
        "spark1",
        "systemd-run --quiet sh -c 'until docker ps | grep -q spark-lab; do sleep 1; done; "
        f'echo "<3>{line.format("new")}" > /dev/kmsg\'',
    )
    run = job("serve", state_home)
    assert run.status == 1
    assert run.folder is not None
    kept = {p.name: p.read_text() for p in run.folder.glob("kernel-*.log")}
    assert "(lab, new)" in kept["kernel-spark1.log"]
    assert not any("(lab, old)" in text for text in kept.values())
    assert "nvCheckOkFailed" not in run.receipt["reason"], "the rank's own words, not the kernel's"
