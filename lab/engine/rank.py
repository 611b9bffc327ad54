"""One rank from its start to its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from . import api, loader, log, options, release, rendezvous, shm, tensors

_HEAD_STOP_S = 1.0  # a real head takes its time to leave, long enough to be met by a fresh rank
_SHM_DIR = Path(os.environ.get("LAB_ENGINE_SHM_DIR", "/dev/shm"))  # noqa: S108 - tests use another


def main(argv: list[str]) -> int:
    """Run one rank until it is told to stop; exit status 1 when it cannot go on."""
    settings = options.parse(argv)
    log.set_rank(settings.rank)
    segments = shm.Segments(_SHM_DIR)

    def leave(signum: int, _frame: FrameType | None) -> None:
        log.line(f"received {signal.Signals(signum).name}, shutting down")
        segments.remove()
        time.sleep(_HEAD_STOP_S if settings.is_head else 0)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    try:
        if settings.is_head:
            _run_head(settings, segments)
        else:
            _run_worker(settings, segments)
    except (tensors.ModelError, loader.LoadError, rendezvous.RefusedError, OSError) as error:
        log.line(f"ERROR: {error}")
    segments.remove()
    return 1


def _run_head(settings: options.Options, segments: shm.Segments) -> None:
    _introduce(settings)
    front = api.Api(settings, tensors.max_model_len(settings.model_path))
    head = rendezvous.Head(settings, tensors.revision(settings.model_path))
    _open(f"API {settings.host}:{settings.port}", lambda: api.start(front))
    _open(f"rendezvous {settings.master_addr}:{settings.master_port}", head.listen)
    head.join()
    segments.create()
    held = loader.load(settings)
    log.line("waiting for the other ranks")
    head.barrier()
    front.total = lambda prompt: held.partial(prompt) + sum(head.partials(prompt))
    front.ready.set()
    log.line("The server is fired up and ready to roll!")
    rendezvous.hang()


def _run_worker(settings: options.Options, segments: shm.Segments) -> None:
    _introduce(settings)
    worker = rendezvous.Worker(settings, tensors.revision(settings.model_path))
    worker.join()
    segments.create()
    held = loader.load(settings)
    log.line("waiting for the other ranks")
    worker.barrier()
    log.line("ready")
    while True:
        worker.answer(held.partial(worker.next_prompt()))


def _open(what: str, start: Callable[[], None]) -> None:
    try:
        start()
    except OSError as error:
        raise loader.LoadError(f"{what}: {error.strerror}") from error


def _introduce(settings: options.Options) -> None:
    log.line(
        f"lab-engine {release.VERSION}, rank {settings.rank} of {settings.nnodes}, "
        f"model {settings.model_path}, served as {settings.served_model_name}"
    )
