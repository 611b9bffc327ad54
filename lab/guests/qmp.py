"""A small QMP client: one connection, one command at a time."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.common.errors import LabError

_ANSWER_S = 120.0  # savevm of a 2 GiB guest writes up to that much to a busy disk


class Qmp:
    """A connection to the monitor of one running guest; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            raise LabError(f"the monitor {path} does not answer: {error.strerror}") from error
        self._lines = self._socket.makefile("rb")
        self._lines.readline()  # the greeting
        self.run("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._socket.close()

    def run(self, command: str, **arguments: object) -> Any:
        """Run a command and return its answer. Raises LabError with QEMU's own words."""
        request = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            for line in self._lines:
                answer = json.loads(line)
                if "error" in answer:
                    raise LabError(f"QEMU refused {command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise LabError(f"QEMU gave no answer to {command}: {error}") from error
        return None  # the connection ended, as it does on quit

    def human(self, line: str) -> str:
        """Run a command of the human monitor. Raises LabError when it prints an error."""
        text = str(self.run("human-monitor-command", **{"command-line": line})).strip()
        if text.startswith("Error"):
            raise LabError(f"QEMU refused `{line}`: {text}")
        return text
