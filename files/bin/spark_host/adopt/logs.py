"""What a container's own log of its start shows: how far a load is, and when it is done."""

from __future__ import annotations

import re
import subprocess

LIMIT_BYTES = 4 << 20  # a start is in there; what months of requests have added is not read
# First group: a number that grows. [stack files; vLLM's, SGLang's and tqdm's own lines]
PROGRESS = (
    r"checkpoint shards:\s+\d+% Completed \| (\d+)/\d+",
    r"[Ll]oading shard (\d+)/\d+",
    r"Capturing batches.*?(\d+)/\d+",
    r"Capturing CUDA graphs.*?(\d+)/\d+",
)
READY = (
    "fired up and ready to roll",
    "Application startup complete",
    "Uvicorn running on",
    "Starting (?:vLLM|SGLang) API server",
)


def of_start(name: str, started_at: str) -> list[str]:
    """The first lines of a container's log since its last start."""
    words = ["docker", "logs", "--since", started_at, name]
    try:
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            data = process.stdout.read(LIMIT_BYTES)
            process.kill()
    except OSError:
        return []
    return data.decode(errors="replace").splitlines()


def patterns(lines: list[str]) -> tuple[list[str], str | None]:
    """(patterns of progress that this log has, the one that says ready or null)."""
    text = "\n".join(lines)
    progress = [one for one in PROGRESS if len(set(re.findall(one, text))) > 1]
    return progress, next((one for one in READY if re.search(one, text)), None)
