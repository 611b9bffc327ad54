"""What every job begins with: the run it belongs to, and the checks before any change."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from facts.snapshot import Ask
from inventory.schema import Cluster
from operations.clocks import cpufreq, gpu
from operations.launch import preflight
from operations.memory import sysctl
from operations.model import shards
from operations.pair import ports
from operations.run import job, lease, program
from operations.run.job import Job
from operations.systemd import logind, maintenance
from operations.watchdogs import resurrection
from stacks.definition import Stack, StackError, load, names

QUIET_LIMIT_S = 86400


@cache
def host_settings() -> dict[str, Any]:
    """files/host.yaml, as it stands."""
    path = Path(__file__).parents[2] / "files" / "host.yaml"
    return cast(dict[str, Any], yaml.safe_load(path.read_text()))


@cache
def known_stacks(lock_dir: str | None) -> tuple[Stack, ...]:
    """All shipped stacks with their locks; a mistake in one of them ends the run in its words."""
    folder = Path(lock_dir) if lock_dir else None
    try:
        return tuple(load(name, folder) for name in names())
    except StackError as error:
        raise PyinfraError("\n".join(error.lines)) from None


def begin(name: str, stack_name: str | None, extra: tuple[str, ...] = ()) -> Job:
    """The run of this job; `stack_name` is what shall serve (None: nothing is launched).

    extra: parts of the hosts' state that are read only when asked for.
    """
    cluster: Cluster = host.data.cluster
    known = known_stacks(cluster.lock_dir)
    stack = next((one for one in known if one.name == stack_name), None)
    if stack_name is not None and stack is None:  # an empty name is one too
        allowed = ", ".join(one.name for one in known)
        raise PyinfraError(f"stack {stack_name!r} found; {allowed} allowed")
    return job.start(name, host, cluster, stack, known, ask_of(cluster, stack, known, extra))


def ask_of(
    cluster: Cluster, stack: Stack | None, known: tuple[Stack, ...], extra: tuple[str, ...] = ()
) -> Ask:
    """What a job reads of a host that it brings to, or checks for, a stack."""
    wanted = [stack] if stack else []
    gpu_too = cluster.clocks.gpu_mhz is not None and "machine" not in extra
    return Ask(
        units=(
            *host_settings()["services_down"],
            *host_settings()["governor_owners"],
            *host_settings()["maintenance_held"],
            *(cpufreq.UNIT, gpu.UNIT),
        ),
        user_units=tuple(host_settings()["user_units_down"]),
        images=tuple(one.image_reference for one in wanted if not one.unlocked),
        shards=tuple(
            (shards.directory(one, cluster.model_dir), shards.lock_id(one)) for one in wanted
        ),
        files=(
            *(cpufreq.UNIT_PATH, gpu.UNIT_PATH, program.UNDO_COMMAND),
            *(sysctl.PATH, logind.PATH, maintenance.NEEDRESTART),
        ),
        words=resurrection.stack_words(known),
        sysctl=(*host_settings()["sysctl"], ports.RANGE, ports.RESERVED),
        ports=tuple(port for one in wanted for port in (one.ports.api, one.ports.rendezvous)),
        extra=(*extra, "gpu") if gpu_too else extra,
    )


def full_read() -> bool:
    """Whether every byte of the model is to be read, whatever was proven: `--data verify=full`.

    Raises PyinfraError for another word.
    """
    given = host.data.get("verify")
    if given not in (None, "full"):
        raise PyinfraError(f"verify={given} found; full allowed")
    return given is not None


def quiet_s(usual: int) -> int:
    """Seconds to watch that nothing comes back: `--data quiet=SECONDS`, or the usual ones.

    Raises PyinfraError for what is no such number.
    """
    given = str(host.data.get("quiet", usual))
    if not given.isdecimal() or int(given) > QUIET_LIMIT_S:
        raise PyinfraError(f"quiet={given} found; whole seconds up to {QUIET_LIMIT_S} allowed")
    return int(given)


@deploy("Preflight")
def preflight_checks(run: Job, launches: bool, settles: bool = True) -> None:
    """All complaints about all hosts, before anything is changed anywhere.

    settles: the hosts themselves are brought to their wanted state too.
    """
    # No barrier yet: the preflight itself says which host is missing, and why the others wait.
    job.milestone(job=run, title="Preflight", name="Stage: Preflight")
    lease.alone(job=run, name="No other run is at work on any host")
    preflight.passed(
        job=run,
        governor=host_settings()["governor"],
        launches=launches,
        settles=settles,
        name="Nothing forbids this job on any host",
    )
    job.barrier(job=run, title="Program", name="Passed on all hosts")
