"""Two runs on one cluster are kept apart: the first one has a lease on every host."""

from __future__ import annotations

import gevent
from pyinfra.api.host import Host

from facts.run.lease import Holder, Lease
from operations.run.control import has_ended
from operations.run.job import Commands, Here, Job, refuse_beforehand, step
from operations.run.remote import whisper

# Four signs of life before the lease of files/bin/spark_host/lease.py lapses (60 s).
BEAT_S = 15


def other(job: Job, host: Host) -> Holder | None:
    """Another run that is at work on a host; one that died on this machine is none."""
    found = job.read(host).lease
    holder = found.holder if isinstance(found, Lease) else None
    if holder is None or holder.run == job.run_name:
        return None
    if not has_ended(holder.origin):
        return holder
    if not job.executing:
        return None
    job.reader.lease["over"] = holder.run  # the next reading takes it
    job.reader.forget(host)
    found = job.read(host).lease
    holder = found.holder if isinstance(found, Lease) else None
    return None if holder is None or holder.run == job.run_name else holder


def sentences(job: Job) -> list[str]:
    """Who else is at work, for each host that can be reached."""
    said = []
    with job.lock:  # every host's operation asks at the same moment
        for host in job.reachable():
            holder = other(job, host)
            if holder is not None:
                said.append(
                    f"{host.name}: {holder.job}, started by {holder.who}, is running; last heard "
                    f"of {holder.age_s:.0f} s ago. Wait until it has ended (if it died: a minute)"
                )
    return said


def beat(job: Job) -> None:
    """Renew the lease on every host for as long as this process lives."""
    while True:
        gevent.sleep(BEAT_S)
        for host in job.reachable():
            if host.name in job.left:
                continue
            answer = whisper(host, "lease", "renew", job.reader.lease_text())
            holder = (answer or {}).get("holder")
            if holder and holder["run"] != job.run_name:
                by = f"{holder['job']}, started by {holder['who']}"
                job.blame(f"{host.name}: {by}, took this run's lease")


@step
def alone(here: Here, partly: bool = False) -> Commands:
    """
    Refuse on every host while another run is at work on any of them, then keep others away.

    + here: this host's share of the run
    + partly: whether it goes on with the hosts that are left when one cannot be reached

    The lease is taken with the reading of the hosts' state and lapses a minute after the last sign
    of life. A run on this machine whose process is gone keeps nobody away.
    """
    if not partly and here.job.absent():
        return  # the preflight refuses, and reads no host
    said = sentences(here.job)
    if said:
        yield refuse_beforehand(here.job, said)
    elif here.executing and here.job.heart is None:
        here.job.heart = gevent.spawn(beat, here.job)


@step
def released(here: Here) -> Commands:
    """
    Let the next run begin at once: it would read every host twice to take over from a dead one.

    + here: this host's share of the run
    """
    if here.executing:
        here.job.leave(here.host)
    yield from ()
