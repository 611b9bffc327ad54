"""The completion client and the canary against a real HTTP server on the loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gates.canary import canary
from gates.client import NoAnswer, complete

GOOD: dict[str, Any] = {
    "model": "lab-model",
    "choices": [{"message": {"role": "assistant", "content": "391"}}],
    "usage": {"completion_tokens": 3},
}


class Server:
    """Answers every request in one way and keeps what it was asked."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                outer.asked.append({"path": self.path, "body": body})
                answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(body: Any = None, status: int = 200, raw: bytes | None = None) -> Server:
        data = raw if raw is not None else json.dumps(body).encode()

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)

        return start_with(answer)

    def start_with(answer: Callable[[BaseHTTPRequestHandler], None]) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    start.__dict__["by"] = start_with
    yield start
    for server in servers:
        server.stop()


def test_a_whole_completion_is_a_reply(serve: Serve) -> None:
    server = serve(GOOD)
    reply = complete(server.url, "lab-model", "17*23?", 5, max_tokens=7)
    assert (reply.model, reply.content, reply.tokens) == ("lab-model", "391", 3)
    assert 0 < reply.seconds < 5
    (asked,) = server.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["body"] == {
        "model": "lab-model",
        "messages": [{"role": "user", "content": "17*23?"}],
        "max_tokens": 7,
        "temperature": 0,
    }


def test_an_environment_proxy_is_not_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert complete(serve(GOOD).url, "lab-model", "?", 5).content == "391"


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"error": "out of memory"},
        GOOD | {"choices": []},
        GOOD | {"choices": [{}]},
        GOOD | {"choices": [{"message": None}]},
        GOOD | {"choices": [{"message": ["391"]}]},
        GOOD | {"choices": "391"},
        GOOD | {"usage": None},
        GOOD | {"usage": {}},
        GOOD | {"usage": {"completion_tokens": "many"}},
        GOOD | {"usage": {"completion_tokens": 1e999}},
        {key: value for key, value in GOOD.items() if key != "model"},
    ],
)
def test_an_odd_answer_is_no_answer(serve: Serve, body: Any) -> None:
    with pytest.raises(NoAnswer, match="odd answer"):
        complete(serve(body).url, "lab-model", "?", 5)


@pytest.mark.parametrize("raw", [b"", b"<html>gateway</html>", b"\xff\xfe", b'{"model": "lab'])
def test_what_is_no_json_is_no_answer(serve: Serve, raw: bytes) -> None:
    with pytest.raises(NoAnswer, match="odd answer"):
        complete(serve(raw=raw).url, "lab-model", "?", 5)


@pytest.mark.parametrize("status", [204, 301, 400, 404, 500, 503])
def test_another_status_is_no_answer_and_is_quoted_in_short(serve: Serve, status: int) -> None:
    with pytest.raises(NoAnswer, match=f"^HTTP {status}") as told:
        complete(serve(raw=b"x" * 5000, status=status).url, "lab-model", "?", 5)
    assert len(str(told.value)) < 300


def test_a_port_where_nothing_listens_is_no_answer() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(NoAnswer, match="no completion: "):
        complete(f"http://127.0.0.1:{port}", "lab-model", "?", 5)


def test_a_connection_that_is_cut_is_no_answer(serve: Serve) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"model"')
        handler.close_connection = True

    with pytest.raises(NoAnswer, match="no completion: "):
        complete(serve.__dict__["by"](cut).url, "lab-model", "?", 5)


def test_a_server_that_hangs_is_given_up_at_the_deadline(serve: Serve) -> None:
    done = threading.Event()
    server = serve.__dict__["by"](lambda _: done.wait(10))
    began = time.monotonic()
    with pytest.raises(NoAnswer, match=r"no completion within 0\.3 s"):
        complete(server.url, "lab-model", "?", 0.3)
    assert time.monotonic() - began < 3
    done.set()


def test_the_deadline_is_one_for_the_whole_answer_not_for_each_byte(serve: Serve) -> None:
    done = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(200):
            if done.wait(0.05):
                return
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    began = time.monotonic()
    with pytest.raises(NoAnswer, match=r"no whole completion within 0\.4 s"):
        complete(serve.__dict__["by"](drip).url, "lab-model", "?", 0.4)
    assert time.monotonic() - began < 3
    done.set()


def test_the_canary_wants_the_wanted_model(serve: Serve) -> None:
    assert canary(serve(GOOD).url, "lab-model", 60).content == "391"
    with pytest.raises(NoAnswer, match="'lab-model' answered, 'other' expected"):
        canary(serve(GOOD).url, "other", 60)


@pytest.mark.parametrize(("content", "tokens"), [("", 3), ("  \n", 3), (None, 3), ("391", 0)])
def test_the_canary_wants_words_and_tokens(serve: Serve, content: str | None, tokens: int) -> None:
    body = GOOD | {
        "choices": [{"message": {"content": content}}],
        "usage": {"completion_tokens": tokens},
    }
    with pytest.raises(NoAnswer, match="the completion is empty"):
        canary(serve(body).url, "lab-model", 60)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", [None, "", "\n"])
def test_thoughts_that_were_cut_off_are_no_answer(
    serve: Serve, name: str, content: str | None
) -> None:
    message = {"content": content, name: "17 times 23 is 391"}
    body = GOOD | {"choices": [{"message": message, "finish_reason": "length"}]}
    with pytest.raises(NoAnswer, match="is empty, cut off while it thought, after 3 tokens"):
        canary(serve(body).url, "lab-model", 60)


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("391", True),
        ("17*23 = 391.", True),
        ("**391**", True),
        ("It is 391, of course", True),
        ("13910", False),
        ("3910", False),
        ("1391", False),
        ("0.391", False),
        ("391.5", False),
        ("391,000", False),
        ("!!!!!!!!!!!!!!!!", False),
        ("What is 17*23? Answer with the number.", False),
    ],
)
def test_the_canary_wants_the_right_number(serve: Serve, content: str, right: bool) -> None:
    url = serve(GOOD | {"choices": [{"message": {"content": content}}]}).url
    if right:
        assert canary(url, "lab-model", 60).content == content
        return
    with pytest.raises(NoAnswer, match="391 expected to"):
        canary(url, "lab-model", 60)


def test_the_canary_leaves_room_for_a_model_that_thinks_first(serve: Serve) -> None:
    server = serve(GOOD)
    canary(server.url, "lab-model", 60)
    assert server.asked[0]["body"]["max_tokens"] >= 256
