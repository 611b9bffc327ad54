"""Long work in a transient unit of its own, which a dead SSH link does not end.

/run/spark-converge/NAME/, root's alone:
    request    what to do; gone once it is read, since it may hold a token
    subject    what it is about, without secrets: whoever asks for the same joins it
    progress   how far it is, written every second
    answer     how it ended; absent while it runs, and when it was cut short
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from run.command import PROGRAM, Failed, run

STATE = "/run/spark-converge"
TELL_S = 1.0
LOOK_S = 0.1
END_S = 30
Progress = dict[str, Any]


def folder(name: str) -> str:
    return f"{STATE}/{name}"


def unit(name: str) -> str:
    return f"spark-converge-{name}"


def active(name: str) -> bool:
    _code, out, _err = run(["systemctl", "is-active", unit(name)])
    return out.strip() in ("active", "activating", "deactivating")


def at_work(name: str) -> bool:
    """Whether it is still to answer; a unit that has answered is given the time to end."""
    until = time.monotonic() + END_S
    while active(name) and time.monotonic() < until:
        if load(name, "answer") is None:
            return True
        time.sleep(LOOK_S)
    return False


def write(name: str, part: str, value: Any) -> None:
    path = f"{folder(name)}/{part}"
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def load(name: str, part: str) -> Any:
    """None when there is no such file."""
    try:
        with open(f"{folder(name)}/{part}") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None


def take_request(name: str) -> dict[str, Any]:
    """The unit's own: what it was asked for, which nobody reads a second time."""
    with open(f"{folder(name)}/request") as file:
        asked: dict[str, Any] = json.load(file)
    os.unlink(f"{folder(name)}/request")
    return asked


def start(name: str, subject: str, request: dict[str, Any], apart: tuple[str, ...] = ()) -> None:
    """Start the unit, or leave the one that is at the same subject alone.

    apart: work that must not go on at the same time. Raises Failed with what is in the way.
    """
    for other in apart:
        if at_work(other):
            raise Failed(
                f"{load(other, 'subject')} is at work here; it goes on by itself, run this again "
                f"later (`systemctl stop {unit(other)}` ends it)"
            )
    if at_work(name):
        running = load(name, "subject")
        if running == subject:
            return
        raise Failed(
            f"{running} is at work here; it goes on by itself, run this again later "
            f"(`systemctl stop {unit(name)}` ends it)"
        )
    import shutil  # noqa: PLC0415 - not loaded by every read of the host

    os.makedirs(STATE, mode=0o700, exist_ok=True)
    shutil.rmtree(folder(name), ignore_errors=True)
    os.mkdir(folder(name), 0o700)
    write(name, "subject", subject)
    write(name, "request", request)
    # An engine may serve beside it.
    line = ["systemd-run", "--quiet", "--collect", f"--unit={unit(name)}", "--property=Nice=10"]
    code, _out, err = run([*line, sys.executable, "-I", PROGRAM, name, "here"])
    if code:
        os.unlink(f"{folder(name)}/request")
        raise Failed(err.strip() or f"systemd-run: exit status {code}")


def poll(name: str, seconds: float) -> dict[str, Any]:
    """{"active", "subject", "progress", "answer"}: as soon as it ended, else after some seconds."""
    until = time.monotonic() + seconds
    runs = active(name)  # asked before the answer is looked for: that is written before the end
    while runs and load(name, "answer") is None and time.monotonic() < until:
        time.sleep(min(LOOK_S, max(until - time.monotonic(), 0.01)))
        if time.monotonic() >= until:
            runs = active(name)
    answer = load(name, "answer")
    return {
        "active": runs and answer is None,
        "subject": load(name, "subject"),
        "progress": load(name, "progress"),
        "answer": answer,
    }


def stop(name: str) -> None:
    run(["systemctl", "stop", unit(name)])


@contextlib.contextmanager
def telling(name: str, look: Callable[[], Progress]) -> Iterator[None]:
    """Keep the file `progress` up to date while the block runs."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(TELL_S):
            write(name, "progress", look())

    write(name, "progress", look())
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        write(name, "progress", look())


class Count:
    """Bytes done of a total, from several threads: {"what", "done", "total", "seconds"}."""

    def __init__(self, what: str) -> None:
        self.what, self.done, self.total, self.began = what, 0, 0, time.monotonic()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done += count

    def progress(self) -> Progress:
        seconds = round(time.monotonic() - self.began, 1)
        return {"what": self.what, "done": self.done, "total": self.total, "seconds": seconds}


def here(name: str, work: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """In the unit: do it, and leave the answer behind; what goes to the journal is short."""
    try:
        answer = work(take_request(name))
    except (Failed, OSError, ValueError, LookupError, RecursionError) as error:
        said = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        answer = {"ok": False, "message": said}
    write(name, "answer", answer)
    return {"ok": answer["ok"]}


class Work(NamedTuple):
    """One kind of long work, under the name of its unit.

    subject: what a request is about, without secrets; do: the work itself, which feeds the counter
    that `counter` makes for a request; apart: work that must not go on at the same time
    """

    name: str
    subject: Callable[[dict[str, Any]], str]
    do: Callable[[dict[str, Any], Any], dict[str, Any]]
    counter: Callable[[dict[str, Any]], Any]
    apart: tuple[str, ...] = ()

    def here(self, request: dict[str, Any]) -> dict[str, Any]:
        counter = self.counter(request)
        with telling(self.name, counter.progress):
            return self.do(request, counter)


def command(work: Work, argv: list[str]) -> dict[str, Any]:
    """run SECONDS < request, poll SECONDS, stop, or here, of one kind of work."""
    action, *rest = argv
    if action == "here":
        return here(work.name, work.here)
    if action == "stop":
        stop(work.name)
        return {}
    if action == "run":
        request = json.load(sys.stdin)
        start(work.name, work.subject(request), request, work.apart)
    elif action != "poll":
        raise ValueError(f"unknown action {action}")
    return poll(work.name, float(rest[0]))
