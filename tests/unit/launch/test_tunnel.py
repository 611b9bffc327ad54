"""The tunnel through an SSH link, against a real SSH server on the loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import paramiko
import pytest
from paramiko.common import (
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

from gates.client import NoAnswer, complete
from gates.tunnel import tunnel

# A traceback of a thread on the person's terminal is a fault of its own.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

KEY = paramiko.ECDSAKey.generate()


class Door(paramiko.ServerInterface):
    """Lets anybody in and forwards to the loopback only, as sshd does with direct-tcpip."""

    def __init__(self) -> None:
        self._far: dict[int, socket.socket] = {}

    def check_auth_none(self, username: str) -> int:  # noqa: ARG002 - paramiko's signature
        return AUTH_SUCCESSFUL

    def check_channel_direct_tcpip_request(
        self,
        chanid: int,
        origin: tuple[str, int],  # noqa: ARG002 - paramiko's signature
        destination: tuple[str, int],
    ) -> int:
        if destination[0] != "127.0.0.1":
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        try:
            self._far[chanid] = socket.create_connection(destination, timeout=5)
        except OSError:
            return OPEN_FAILED_CONNECT_FAILED
        return OPEN_SUCCEEDED

    def join(self, transport: paramiko.Transport) -> None:
        """Join every accepted channel with its connection, until the link is closed."""
        while channel := transport.accept(30):
            far = self._far.pop(channel.get_id())
            threading.Thread(target=_copy, args=(far, channel), daemon=True).start()
            threading.Thread(target=_copy, args=(channel, far), daemon=True).start()


def _copy(source: socket.socket | paramiko.Channel, sink: socket.socket | paramiko.Channel) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except (OSError, EOFError, paramiko.SSHException):
        pass
    finally:
        sink.close()


@pytest.fixture
def link() -> Iterator[paramiko.Transport]:
    """The client's end of an SSH link to a server in this process."""
    others = set(threading.enumerate())
    near, far = socket.socketpair()
    server = paramiko.Transport(far)
    server.add_server_key(KEY)
    door = Door()
    server.start_server(event=threading.Event(), server=door)  # with an event it does not wait
    threading.Thread(target=door.join, args=(server,), daemon=True).start()
    client = paramiko.Transport(near)
    client.start_client(timeout=10)
    client.auth_none("ci")
    yield client
    client.close()
    server.close()
    for thread in set(threading.enumerate()) - others:
        if "(_pump)" in thread.name or "(_serve)" in thread.name:
            thread.join(5)  # so that what it raises is seen in this test
            assert not thread.is_alive()


Answer = Callable[[socket.socket], None]


def listening(answer: Answer) -> int:
    """A port on the loopback; every connection to it is given to `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def respond(body: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)

    return answer


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_request_reaches_the_far_loopback_and_its_whole_answer_comes_back(
    link: paramiko.Transport,
) -> None:
    body = bytes(range(256)) * 4096  # a mebibyte, sixteen times what a read takes
    with tunnel(link, listening(respond(body))) as url:
        assert url.startswith("http://127.0.0.1:")
        answer = httpx.get(url, timeout=10, trust_env=False)
        assert answer.content == body


def test_several_connections_share_the_link(link: paramiko.Transport) -> None:
    with tunnel(link, listening(respond(b"ok"))) as url:
        answers: list[str] = []

        def ask() -> None:
            answers.append(httpx.get(url, timeout=10, trust_env=False).text)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert answers == ["ok"] * 5


def test_a_far_port_where_nothing_listens_is_no_answer_at_once_and_the_tunnel_stays(
    link: paramiko.Transport,
) -> None:
    with tunnel(link, closed_port()) as url:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(NoAnswer, match="no completion: "):
                complete(url, "m", "?", 8)
            assert time.monotonic() - began < 5


def test_nobody_listens_when_the_block_has_ended(link: paramiko.Transport) -> None:
    with tunnel(link, closed_port()) as url:
        port = int(url.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_the_tunnel_listens_on_the_loopback_only(link: paramiko.Transport) -> None:
    with tunnel(link, closed_port()) as url:
        assert url.split("//")[1].split(":")[0] == "127.0.0.1"


def test_a_link_that_died_is_no_answer(link: paramiko.Transport) -> None:
    with tunnel(link, listening(respond(b"ok"))) as url:
        link.close()
        with pytest.raises(NoAnswer, match="no completion: "):
            complete(url, "m", "?", 8)


def test_a_link_that_dies_under_an_open_answer_is_no_answer(link: paramiko.Transport) -> None:
    def half(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        link.close()

    with (
        tunnel(link, listening(half)) as url,
        pytest.raises(NoAnswer, match="no completion: "),
    ):
        complete(url, "m", "?", 8)


def test_a_client_that_gives_up_leaves_no_traceback(link: paramiko.Transport) -> None:
    """The far end goes on sending after the near one has gone, as an engine does."""
    gone = threading.Event()
    ended = threading.Event()

    def flood(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        gone.wait(10)
        connection.settimeout(5)
        try:
            for _ in range(200):
                connection.sendall(b"x" * 65536)
        except OSError:
            ended.set()

    with tunnel(link, listening(flood)) as url:
        port = int(url.rsplit(":", 1)[1])
        near = socket.create_connection(("127.0.0.1", port), timeout=5)
        near.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert near.recv(10)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        near.close()  # with a reset, data unread
        gone.set()
        assert ended.wait(10)
