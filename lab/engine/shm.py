"""Segments in /dev/shm as a tensor-parallel engine leaves them: unlinked on a clean exit only."""

from __future__ import annotations

import mmap
import os
import secrets
from pathlib import Path

# Names and rough sizes as multiprocessing (psm_), its semaphores (sem.) and torch make them.
_SEGMENT_BYTES = 256 * 1024
_SEMAPHORE_BYTES = 32


class Segments:
    """Mapped segments of this process, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: list[Path] = []
        self._maps: list[mmap.mmap] = []

    def create(self) -> None:
        """Make and map one segment of each kind, readable by the owner only."""
        token = secrets.token_hex(4)
        self._make(f"psm_{token}", _SEGMENT_BYTES)
        self._make(f"sem.mp-{token}", _SEMAPHORE_BYTES)
        self._make(f"torch_{os.getpid()}_{int(token, 16)}_0", _SEGMENT_BYTES)

    def remove(self) -> None:
        """Unlink them all; one that is gone already is no error."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _make(self, name: str, size_bytes: int) -> None:
        path = self._directory / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._paths.append(path)
        try:
            os.ftruncate(descriptor, size_bytes)
            segment = mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)
        # Touch every page: the memory of a leftover segment counts as used.
        segment.write(b"\x01" * size_bytes)
        self._maps.append(segment)
