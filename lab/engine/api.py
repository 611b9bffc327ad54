"""The head's HTTP API. Everything but a completion answers from the start, and always well."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from . import chat, faults, log, release
from .options import Options
from .rendezvous import hang

_BODY_LIMIT_BYTES = 16 * 1024 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large"}


class Api:
    """State behind the HTTP server: the model's name, readiness, counters."""

    def __init__(self, options: Options, max_model_len: int) -> None:
        self.options = options
        self.max_model_len = max_model_len
        self.ready = threading.Event()
        self.total: Callable[[str], float] = lambda _: hang()  # set once the ranks have loaded
        self._lock = threading.Lock()
        self._counts = {"running": 0, "prompt": 0, "generation": 0, "requests": 0}

    def complete(self, request: chat.Request) -> dict[str, Any]:
        """Compute one answer with all ranks; returns only when every one has done its part."""
        self._count(running=1)
        self.ready.wait()
        wanted = faults.read(self.options.faults_file)
        if "completions-hang" in wanted:
            hang()
        fingerprint = chat.checksum(request.prompt, self.total(request.prompt))
        pieces = chat.tokens(chat.answer(request.question, fingerprint))
        if "answer-empty" in wanted:
            pieces = []
        kept = pieces[: request.max_tokens]
        prompt_count = len(chat.tokens(request.prompt))
        self._count(running=-1, prompt=prompt_count, generation=len(kept), requests=1)
        wrong = "answer-wrong-model" in wanted
        return {
            "id": f"chatcmpl-{fingerprint}-{time.monotonic_ns()}",
            "created": int(time.time()),
            "model": "another-model" if wrong else self.options.served_model_name,
            "system_fingerprint": f"lab-{fingerprint}",
            "pieces": kept,
            "finish_reason": "length" if len(kept) < len(pieces) else "stop",
            "usage": {
                "prompt_tokens": prompt_count,
                "completion_tokens": len(kept),
                "total_tokens": prompt_count + len(kept),
            },
        }

    def models(self) -> dict[str, Any]:
        """Body of ``/v1/models``."""
        model = {
            "id": self.options.served_model_name,
            "object": "model",
            "owned_by": "lab",
            "root": str(self.options.model_path),
            "max_model_len": self.max_model_len,
        }
        return {"object": "list", "data": [model]}

    def metrics(self) -> str:
        """Body of ``/metrics``: Prometheus text with SGLang's names."""
        with self._lock:
            counts = dict(self._counts)
        labels = f'{{model_name="{self.options.served_model_name}"}}'
        rows = (
            ("sglang:num_running_reqs", "gauge", counts["running"]),
            ("sglang:prompt_tokens_total", "counter", counts["prompt"]),
            ("sglang:generation_tokens_total", "counter", counts["generation"]),
            ("sglang:num_requests_total", "counter", counts["requests"]),
        )
        text = "".join(f"# TYPE {name} {kind}\n{name}{labels} {n}\n" for name, kind, n in rows)
        info = f'lab_engine_info{{version="{release.VERSION}"}} 1'
        return f"{text}# TYPE lab_engine_info gauge\n{info}\n"

    def _count(self, **changes: int) -> None:
        with self._lock:
            for name, change in changes.items():
                self._counts[name] += change


def start(api: Api) -> None:
    """Serve in a thread from now on. Raises OSError when the port cannot be had."""
    handler = type("BoundHandler", (_Handler,), {"api": api})
    server = _Server((api.options.host, api.options.port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        # HTTPServer would ask a name server for this host's name, which a guest cannot reach.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A caller that hangs up is everyday life and no matter for the log.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    api: Api
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._send(200, b"", "text/plain")
        elif path == "/v1/models":
            self._send_json(200, self.api.models())
        elif path == "/metrics":
            self._send(200, self.api.metrics().encode(), "text/plain; version=0.0.4")
        elif path == "/version":
            self._send_json(200, {"version": release.VERSION})
        else:
            self._send_error(404, f"no such path: {path}")

    def do_POST(self) -> None:
        announced = self.headers.get("Content-Length", "")
        if not announced.isdecimal():
            self.close_connection = True
            self._send_error(400, "no usable Content-Length")
            return
        length = int(announced)
        if length > _BODY_LIMIT_BYTES:
            self.close_connection = True
            self._send_error(413, f"body of {length} bytes, {_BODY_LIMIT_BYTES} allowed")
            return
        body = self.rfile.read(length)
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._send_error(404, f"no such path: {self.path}")
            return
        try:
            request = chat.parse(json.loads(body))
        except (chat.BadRequestError, ValueError) as error:
            self._send_error(400, str(error))
            return
        name = self.api.options.served_model_name
        if request.model != name:
            self._send_error(404, f"model {request.model!r} does not exist; {name!r} is served")
            return
        result = self.api.complete(request)
        try:
            if request.stream:
                self._stream(result, request.include_usage)
            else:
                self._send_json(200, _plain(result))
        except ConnectionError:
            self.close_connection = True  # the caller has given up

    def _stream(self, result: dict[str, Any], include_usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in _chunks(result, include_usage):
            event = f"data: {chunk}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def _send_json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send_error(self, status: int, message: str) -> None:
        error = {"message": message, "type": _REASONS[status].replace(" ", "") + "Error"}
        self._send_json(status, {"object": "error", "error": {**error, "code": status}})

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status, _REASONS[status])
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        # An access line per request, as uvicorn writes it: it must not pass for load progress.
        host, port = self.client_address[:2]
        status = f"{int(code)} {_REASONS.get(int(code), '')}"
        log.raw(f'INFO:     {host}:{port} - "{self.requestline}" {status}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.raw(f"WARNING:  {format % args}")


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(result["pieces"])}
    choice = {"index": 0, "message": message, "finish_reason": result["finish_reason"]}
    return {
        **_head(result, "chat.completion"),
        "choices": [{**choice, "logprobs": None}],
        "usage": result["usage"],
    }


def _chunks(result: dict[str, Any], include_usage: bool) -> Iterator[str]:
    base = _head(result, "chat.completion.chunk")

    def chunk(delta: dict[str, str], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return json.dumps({**base, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in result["pieces"]:
        yield chunk({"content": piece})
    yield chunk({}, result["finish_reason"])
    if include_usage:
        yield json.dumps({**base, "choices": [], "usage": result["usage"]})
    yield "[DONE]"


def _head(result: dict[str, Any], kind: str) -> dict[str, Any]:
    shared = ("id", "created", "model", "system_fingerprint")
    return {"object": kind, **{name: result[name] for name in shared}}
