"""The waiting end of an RDMA test is seen to listen, is met, and never stays behind."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

rdma = module("network.rdma")

WAITS = """\
#!/usr/bin/env python3
import socket, sys
words = sys.argv[1:]
with socket.socket() as end:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.bind(("127.0.0.1", int(words[words.index("-p") + 1])))
    end.listen()
    end.accept()
"""
FAILS = "#!/bin/sh\necho 'Failed to modify QP to RTR' >&2\nexit 1\n"
MEETS = '#!/bin/sh\necho "met $*"\n'


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a program of this text in the place of ibv_rc_pingpong."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(rdma, "STATE", str(tmp_path / "state"))

    def put(text: str) -> None:
        path = tmp_path / "ibv_rc_pingpong"
        path.write_text(text)
        path.chmod(0o755)

    yield put
    rdma.end()


def free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def test_a_waiting_end_listens_and_is_ended(tool: Any) -> None:
    tool(WAITS)
    port = free_port()
    assert rdma.serve("ibv_rc_pingpong", "rocep1s0f0", "3", str(port), "4096") == {}
    assert rdma.listens(port)
    rdma.end()
    deadline = time.monotonic() + 10
    while rdma.listens(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not rdma.listens(port)


def test_an_end_that_cannot_wait_says_why(tool: Any) -> None:
    tool(FAILS)
    answer = rdma.serve("ibv_rc_pingpong", "rocep1s0f0", "3", str(free_port()), "4096")
    assert answer == {"ok": False, "message": "Failed to modify QP to RTR"}


def test_the_other_end_is_given_device_index_port_and_address(tool: Any) -> None:
    tool(MEETS)
    found = rdma.meet("ibv_rc_pingpong", "rocep1s0f0", "3", "18515", "4096", "10.0.0.2")
    assert found == {"out": "met -d rocep1s0f0 -g 3 -p 18515 -m 4096 -n 200 10.0.0.2\n"}
    tool(FAILS)
    with pytest.raises(module("run.command").Failed, match="Failed to modify QP to RTR"):
        rdma.meet("ibv_rc_pingpong", "rocep1s0f0", "3", "18515", "4096", "10.0.0.2")


def test_a_process_that_only_has_the_number_of_an_old_end_is_left(tool: Any) -> None:
    Path(rdma.STATE).mkdir()
    Path(rdma.STATE, "rdma.pid").write_text(str(os.getpid()))
    rdma.end()  # this test is still here
