"""A source, a manifest or an index that is made to hurt: one sentence for the file, and no more."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stacks.lock import endpoint
from tests.unit.model.test_spark_host_fetch import ENTRIES, NAMES, look, request, root
from tests.unit.on_host import module

__all__ = ["root"]
download, fetch, names, shards, detached, proofs = map(
    module,
    ("model.download", "model.fetch", "model.names", "model.shards", "run.detached",
     "model.proofs"),
)  # fmt: skip
Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A source that gives this answer to everything; its address, and the headers that came."""
    came: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(dict(self.headers))
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", came
        server.shutdown()


def sentence(root: Path, answer: Answer, **entry: Any) -> str:
    """What becomes of the one file that is missing, when the source answers so."""
    (root / "lab" / NAMES[0]).unlink()
    with serving(answer) as (url, _):
        asked = request(root, {"wrong": [NAMES[0]], "extra": []}, None)
        asked["source"] = {"said": "it", "urls": {NAMES[0]: f"{url}/x"}, "token": None}
        asked["entries"] = [asked["entries"][0] | entry]
        found = fetch.fetch(asked, detached.Count("brought"))
    (said,) = found["failed"]
    assert said.isprintable()
    assert not (root / "lab" / NAMES[0]).exists()
    assert found["moved_bytes"] < 10 << 20
    return str(said)


def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


def larger(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "70000")
    handler.end_headers()
    handler.wfile.write(b"x" * 70_000)


@pytest.mark.parametrize(
    ("answer", "entry", "said"),
    [
        (endless, {}, "more than the 60000 bytes that it has came: cut off"),
        (larger, {}, "70000 bytes there, 60000 expected"),
        (endless, {"size": None}, "does not say how large it is"),
    ],
)
def test_a_source_that_sends_more_is_cut_off_and_named(
    root: Path, answer: Answer, entry: dict[str, Any], said: str
) -> None:
    assert said in sentence(root, answer, **entry)


@pytest.mark.parametrize(
    "to",
    ["http://[::1", "http://host:99999/", "ftp://127.0.0.1/x", "file:///etc/passwd",
     "http://127.0.0.1:0/", "//[", "http://h\x1b[31m/", "http://a b/", "javascript:x",
     "http://127.0.0.1:x/"],
)  # fmt: skip
def test_a_redirect_to_nowhere_is_that_files_sentence(root: Path, to: str) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.end_headers()

    assert "which is no address" in sentence(root, answer)


@pytest.mark.parametrize(
    ("status", "header", "value"),
    [(404, "X-Error-Message", "gone \x1b]0;mine\x07"), (429, "Retry-After", "\xb2"),
     (206, "Content-Range", f"bytes 0-1/{'9' * 5000}"), (200, "Content-Length", "\xb2"),
     (302, "Location", "x" * 70_000), (500, "RateLimit", "t=" + "9" * 5000)],
)  # fmt: skip
def test_odd_headers_are_that_files_sentence(
    root: Path, status: int, header: str, value: str
) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header(header, value)
        handler.end_headers()

    assert sentence(root, answer)


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/cron.d/x", "a/../../x", "", ".", "a//b", "a/", "a\nb", "a\x1b[31mb", "a\0b",
     None, 7, "n" * 300, ".spark-converge-aside/x", "x.spark-converge-part", ["x"]],
    ids=repr,
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused_on_the_host_too(root: Path, name: Any) -> None:
    asked = request(root, {"wrong": [NAMES[0]], "extra": []}, None)
    asked["entries"][0] = asked["entries"][0] | {"name": name}
    for run in (fetch.fetch, shards.verify):
        with pytest.raises(fetch.Failed) as caught:
            run({"full": False, "links": "follow", "mount": None, **asked}, detached.Count("x"))
        assert str(caught.value).isprintable()
    with pytest.raises(fetch.Failed):
        fetch.fetch(asked | {"entries": [], "extra": [name]}, detached.Count("x"))


@pytest.mark.parametrize(
    "both", [("a", "a/b"), ("a/b", "a/b/c/d"), ("x.safetensors", "x.safetensors/y")]
)
def test_a_file_beside_a_folder_of_its_name_is_refused(both: tuple[str, str]) -> None:
    entries = [{"name": name, "size": 1, "sha256": "0" * 64} for name in both]
    with pytest.raises(fetch.Failed, match="one of them a file, not both"):
        names.checked(entries, [])


@pytest.mark.parametrize(
    "changed",
    [{"size": -1}, {"size": True}, {"size": "9"}, {"sha256": "../../etc/passwd"}, {"sha256": 5},
     {"sha256": "A" * 64}],
    ids=str,
)  # fmt: skip
def test_a_size_or_a_hash_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(fetch.Failed, match="expected"):
        names.checked([ENTRIES[0] | changed], [])


@pytest.mark.parametrize("folder", ["relative", "/a/../b", "/a\nb", "", None])
def test_a_folder_that_leads_elsewhere_is_refused(folder: Any) -> None:
    with pytest.raises(fetch.Failed):
        names.folder(folder)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"weight_map": ' + '{"a":' * 50_000, '{"weight_map": {"a": ["x"]}}',
     '{"weight_map": {"a": {}}}', '{"weight_map": {"a": 1, "b": "x"}}', '{"weight_map": []}',
     '{"weight_map": {"a": 1}}', '{"weight_map": {"a": NaN}}', '{"weight_map": null}', "null", "",
     '{"weight_map": {"a": ' + "9" * 5000 + "}}", "\x00", '"' + "x" * 100_000],
    ids=range(14),
)  # fmt: skip
def test_an_index_that_is_none_beside_the_manifest_is_a_fault(root: Path, text: str) -> None:
    (root / "lab" / "model.safetensors.index.json").write_text(text)
    began = time.monotonic()
    answer = look(root)
    assert answer["faults"] == [
        "model.safetensors.index.json: not in the manifest, and not an index of weights"
    ]
    assert time.monotonic() - began < 2


def test_an_index_with_hostile_names_is_one_short_printable_line(root: Path) -> None:
    strange = {str(n): f"\x1b[31m{n}" + "y" * 70_000 for n in range(5)}
    (root / "lab" / "a.safetensors.index.json").write_text(json.dumps({"weight_map": strange}))
    (line,) = look(root)["faults"]
    assert line.isprintable()
    assert len(line) < 600


def test_an_index_larger_than_any_is_not_read(root: Path) -> None:
    with (root / "lab" / "a.safetensors.index.json").open("wb") as file:
        file.truncate(3 << 30)
    began = time.monotonic()
    assert "not an index of weights" in look(root)["faults"][0]
    assert time.monotonic() - began < 2


DEEP = "[" * 100_000


def test_deep_json_is_a_verdict_wherever_the_host_reads_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "STATE", str(tmp_path / "run"))
    (tmp_path / "run" / "fetch").mkdir(parents=True)
    (tmp_path / "run" / "fetch" / "answer").write_text(DEEP)
    assert detached.load("fetch", "answer") is None
    Path(proofs.RECORDS).mkdir()
    Path(proofs.proofs_path("/x")).write_text(DEEP)
    assert proofs.load("/x") == {}
    assert module("snapshot").answer("lease", {"lease": DEEP}).keys() == {"unknown"}


@pytest.mark.parametrize(
    ("url", "sent"),
    [("http://127.0.0.1:1/x", True), ("http://192.0.2.1/x", False), ("https://192.0.2.1/x", True),
     ("http://localhost:1/x", True), ("http://127.evil.example/x", False)],
)  # fmt: skip
def test_a_token_crosses_no_network_in_the_clear(
    monkeypatch: pytest.MonkeyPatch, url: str, sent: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert bool(endpoint.token(url)) is sent
    assert download.private(download.address(url)) is sent
    seen: list[dict[str, str]] = []

    class Link:
        def request(self, _how: str, _what: str, headers: dict[str, str]) -> None:
            seen.append(headers)
            raise OSError("nobody there")

        def close(self) -> None:
            """Nothing."""

    monkeypatch.setattr(download, "connection", lambda _: Link())
    with pytest.raises(OSError, match="nobody there"):
        download.Source("hf_secret")._asked(url, 0)
    assert ("Authorization" in seen[0]) is sent


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://milo:Zx123@hub.example.net/api?key=Zx123", "https://hub.example.net/api"),
        ("http://Zx123@127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://huggingface.co", "https://huggingface.co"),
        ("http://milo:Zx123@[::1", "the Hub at HF_ENDPOINT"),
        ("milo:Zx123@hub", "the Hub at HF_ENDPOINT"),
    ],
)
def test_a_login_in_the_hubs_address_is_never_shown(url: str, shown: str) -> None:
    assert endpoint.shown(url) == shown
    assert "Zx123" not in endpoint.without_login(f"cannot reach {url}", url)
