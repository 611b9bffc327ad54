"""What a host lacks, brought over real sockets: from the Hub, from another host, from itself."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.services.hub import Hub
from tests.unit.on_host import module, tree

fetch, shards, lend, proofs, detached, journal, place, download, restore, aside = map(
    module,
    (
        *(
            "model.fetch",
            "model.shards",
            "model.lend",
            "model.proofs",
            "run.detached",
            "run.journal",
            "model.place",
            "model.download",
        ),
        *("undo.restore", "model.aside"),
    ),
)
REPOSITORY = "lab/tiny"
LOCK = "a" * 64
Entry = dict[str, Any]


def content(name: str) -> bytes:
    """60 KB that no two files share."""
    return hashlib.shake_256(name.encode()).digest(60_000)


NAMES = [f"model-{n:05d}.safetensors" for n in range(8)]
FILES = {**{name: content(name) for name in NAMES}, "chat_template.jinja": b"{{ messages }}"}
ENTRIES: list[Entry] = [
    {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for name, data in FILES.items()
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all models; the model in it is right."""
    monkeypatch.setattr(proofs, "RECORDS", str(tmp_path / "records"))
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between tries
    folder = tmp_path / "models" / "lab"
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return tmp_path / "models"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as made:
        made.publish(REPOSITORY, FILES)
        yield made


def look(root: Path, directory: Path | None = None, **changes: Any) -> dict[str, Any]:
    asked = {
        "directory": str(directory or root / "lab"),
        "lock": LOCK,
        "entries": ENTRIES,
        "full": False,
        "links": "follow",
        "mount": None,
    }
    answer: dict[str, Any] = shards.verify(asked | changes, detached.Count("read"))
    return answer


def request(
    root: Path, seen: dict[str, Any], source: Any, directory: Path | None = None
) -> dict[str, Any]:
    return {
        "directory": str(directory or root / "lab"),
        "lock": LOCK,
        "entries": [e for e in ENTRIES if e["name"] in seen["wrong"]],
        "extra": seen["extra"],
        "root": str(root),
        "repository": REPOSITORY,
        "revision": "1" * 40,
        "source": source,
    }


def of_hub(hub: Hub, token: str | None = None) -> dict[str, Any]:
    revision = hub.repositories[REPOSITORY].main
    urls = {name: f"{hub.url}/{REPOSITORY}/resolve/{revision}/{name}" for name in FILES}
    return {"said": "the Hub", "urls": urls, "token": token}


def bring(
    root: Path, seen: dict[str, Any], source: Any, directory: Path | None = None
) -> dict[str, Any]:
    asked = request(root, seen, source, directory)
    answer: dict[str, Any] = fetch.fetch(asked, detached.Count("brought"))
    return answer


def flipped(path: Path) -> None:
    before, data = path.stat(), bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncated(path: Path) -> None:
    os.truncate(path, 1000)


def missing(path: Path) -> None:
    path.unlink()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("../gone")


def folder_of_that_name(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("somebody's")


HARMS = [flipped, truncated, missing, dangling, folder_of_that_name]


@pytest.mark.parametrize("harm", HARMS)
def test_exactly_the_wrong_file_is_brought_and_then_all_is_proven_without_a_read(
    root: Path, hub: Hub, harm: Callable[[Path], None]
) -> None:
    look(root)
    harm(root / "lab" / NAMES[3])
    seen = look(root)
    assert seen["wrong"] == [NAMES[3]]
    answer = bring(root, seen, of_hub(hub))
    assert (answer["ok"], answer["brought"]) == (True, {NAMES[3]: 60_000})
    assert answer["moved_bytes"] == 60_000
    assert hub.sent() == {NAMES[3]: 60_000}
    after = look(root)
    assert (after["ok"], after["bytes"]) == (True, 0)
    assert not list(root.rglob(f"*{place.PART}"))


def test_a_whole_model_comes_where_there_was_none(root: Path, hub: Hub) -> None:
    shutil.rmtree(root / "lab")
    answer = bring(root, look(root), of_hub(hub))
    assert len(answer["brought"]) == len(FILES)
    assert look(root)["ok"] is True


def test_an_edited_template_is_kept_and_given_back_by_undo(root: Path, hub: Hub) -> None:
    path = root / "lab" / "chat_template.jinja"
    path.write_text("mine")
    answer = bring(root, look(root), of_hub(hub))
    (kept,) = answer["aside"]
    assert Path(kept["to"]).read_text() == "mine"
    assert path.read_bytes() == FILES[path.name]
    given = restore.undo(())
    assert given["ok"] is True
    assert given["restored"] == [str(path)]
    assert path.read_text() == "mine"
    assert not (root / "lab" / aside.FOLDER).exists()


def test_a_template_edited_after_the_fetch_is_left_by_undo(root: Path, hub: Hub) -> None:
    path = root / "lab" / "chat_template.jinja"
    path.write_text("mine")
    bring(root, look(root), of_hub(hub))
    path.write_text("later")
    given = restore.undo(())
    (left,) = given["left"]
    assert left["name"] == str(path)
    assert aside.FOLDER in left["why"]


def test_an_extra_shard_goes_aside_and_comes_back_with_undo(root: Path) -> None:
    stray = root / "lab" / "model.safetensors"
    stray.write_bytes(b"somebody's")
    before = tree(root)
    seen = look(root)
    assert (seen["wrong"], seen["extra"]) == ([], [stray.name])
    answer = bring(root, seen, None)
    assert (answer["ok"], answer["moved_bytes"]) == (True, 0)
    assert look(root)["ok"] is True
    assert restore.undo(())["ok"] is True
    assert tree(root) == before


def test_what_was_a_folder_stays_aside_and_undo_says_where(root: Path, hub: Hub) -> None:
    folder_of_that_name(root / "lab" / NAMES[0])
    bring(root, look(root), of_hub(hub))
    given = restore.undo(())
    assert given["ok"] is True
    assert aside.FOLDER in given["notes"][0]
    assert (root / "lab" / aside.FOLDER / NAMES[0] / "inside").read_text() == "somebody's"
    assert (root / "lab" / NAMES[0]).read_bytes() == FILES[NAMES[0]]


def test_a_download_that_was_cut_off_goes_on_from_its_last_byte(root: Path, hub: Hub) -> None:
    path = root / "lab" / NAMES[2]
    path.rename(f"{path}{place.PART}")
    os.truncate(f"{path}{place.PART}", 45_000)
    answer = bring(root, look(root), of_hub(hub))
    assert answer["moved_bytes"] == 15_000
    assert hub.sent() == {NAMES[2]: 15_000}
    assert path.read_bytes() == FILES[NAMES[2]]


def test_links_that_drop_again_and_again_only_cost_time(root: Path, hub: Hub) -> None:
    (root / "lab" / NAMES[2]).unlink()
    hub.faults.cut[NAMES[2]] = 7_000
    answer = bring(root, look(root), of_hub(hub))
    assert answer["ok"] is True
    assert answer["moved_bytes"] == 60_000


def test_a_source_that_brings_nothing_is_given_up_and_the_rest_comes_all_the_same(
    root: Path, hub: Hub
) -> None:
    for name in NAMES[2:4]:
        (root / "lab" / name).unlink()
    hub.faults.cut[NAMES[2]] = 0
    answer = bring(root, look(root), of_hub(hub))
    assert list(answer["brought"]) == [NAMES[3]]
    (failed,) = answer["failed"]
    assert failed.startswith(f"{NAMES[2]}: cut off after 0 of 60000 bytes, 5 times in a row")


@pytest.mark.parametrize(("times", "good"), [(1, True), (2, False)])
def test_wrong_bytes_are_kept_nowhere_and_asked_for_once_more(
    root: Path, hub: Hub, times: int, good: bool
) -> None:
    path = root / "lab" / NAMES[2]
    flipped(path)
    wrong = path.read_bytes()
    hub.faults.wrong[NAMES[2]] = times
    answer = bring(root, look(root), of_hub(hub))
    assert answer["ok"] is good
    assert answer["moved_bytes"] == 120_000
    assert path.read_bytes() == (FILES[NAMES[2]] if good else wrong)
    assert not list(root.rglob(f"*{place.PART}"))
    if not good:
        assert answer["failed"][0].startswith(f"{NAMES[2]}: SHA-256 ")


@pytest.mark.parametrize("size", [60_000, 90_000])
def test_a_part_of_other_bytes_is_not_believed(root: Path, hub: Hub, size: int) -> None:
    path = root / "lab" / NAMES[2]
    path.unlink()
    Path(f"{path}{place.PART}").write_bytes(b"x" * size)
    answer = bring(root, look(root), of_hub(hub))
    assert answer["ok"] is True
    assert answer["moved_bytes"] == 60_000


def lock_of(**files: bytes) -> list[Entry]:
    return [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]


def bring_all(root: Path, hub: Hub, entries: list[Entry], directory: Path) -> dict[str, Any]:
    """Bring every one of these from the hub, whatever is there."""
    base = f"{hub.url}/{REPOSITORY}/resolve/{hub.repositories[REPOSITORY].main}"
    urls = {e["name"]: f"{base}/{urllib.parse.quote(e['name'])}" for e in entries}
    asked = request(root, {"wrong": [], "extra": []}, None, directory) | {
        "entries": entries,
        "source": {"said": "the Hub", "urls": urls, "token": None},
    }
    answer: dict[str, Any] = fetch.fetch(asked, detached.Count("brought"))
    return answer


@pytest.mark.parametrize("in_cache", [False, True])
def test_odd_files_of_a_repository_come_as_all_others(root: Path, hub: Hub, in_cache: bool) -> None:
    """Empty ones, two of the same bytes, folders, blanks and other scripts."""
    files = {
        "__init__.py": b"",
        "sub/__init__.py": b"",
        "original/tokenizer.model": b"t" * 5000,
        "tokenizer.model": b"t" * 5000,
        "assets/a b (1).png": b"p",
        "模型.md": b"m",
    }
    hub.publish(REPOSITORY, files)
    plain, cache = root / "odd", root / "models--lab--tiny" / "snapshots" / ("1" * 40)
    directory = cache if in_cache else plain
    entries = lock_of(**files)
    answer = bring_all(root, hub, entries, directory)
    assert answer["failed"] == []
    assert {n: (directory / n).read_bytes() for n in files} == files
    assert look(root, directory, entries=entries)["ok"] is True
    assert not list(root.rglob(f"*{place.PART}"))


def test_a_file_that_the_source_has_empty_is_one_sentence(root: Path, hub: Hub) -> None:
    hub.publish(REPOSITORY, {"config.json": b""})
    entries = [e | {"size": None} for e in lock_of(**{"config.json": b"{}"})]
    (failed,) = bring_all(root, hub, entries, root / "odd")["failed"]
    assert failed.startswith("config.json: SHA-256 e3b0c44298fc1c149afb")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_new_folders_belong_to_whoever_has_the_model(root: Path, hub: Hub) -> None:
    os.chown(root / "lab", 1234, 1234)
    hub.publish(REPOSITORY, {"sub/deeper/config.json": b"{}"})
    bring_all(root, hub, lock_of(**{"sub/deeper/config.json": b"{}"}), root / "lab")
    for name in ("sub", "sub/deeper", "sub/deeper/config.json"):
        assert (root / "lab" / name).stat().st_uid == 1234


def test_a_full_disk_is_said_once_and_not_asked_for_again(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (root / "lab" / NAMES[2]).unlink()
    seen = look(root)
    monkeypatch.setattr(os, "pwrite", full)
    (failed,) = bring(root, seen, of_hub(hub))["failed"]
    part = f"{root / 'lab' / NAMES[2]}{place.PART}"
    assert failed == f"{NAMES[2]}: No space left on device: {part}"
    assert len(hub.transfers) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"RateLimit": '"resolvers";r=0;t=55'}, 55),
        ({"Retry-After": "86400"}, 60),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1),
        ({}, 1),
    ],
)
def test_a_source_with_too_much_to_do_is_asked_again_when_it_says(
    root: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    header: dict[str, str],
    seconds: float,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    (root / "lab" / NAMES[2]).unlink()
    seen = look(root)
    slept.clear()
    hub.faults.busy.append(header)
    assert bring(root, seen, of_hub(hub))["ok"] is True
    assert slept == [seconds]


def test_a_copy_on_this_host_that_cannot_be_read_is_none(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad block in the cache: the bytes come from the Hub instead."""
    cached(root)
    real = fetch.reading.blocks

    def bad(path: str, first: int = 0) -> Any:
        if "/blobs/" in os.path.realpath(path):  # by an open file's own path
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, first)

    monkeypatch.setattr(fetch.reading, "blocks", bad)
    answer = bring(root, look(root), of_hub(hub))
    assert len(answer["brought"]) == len(FILES)
    assert look(root)["ok"] is True


def test_free_space_is_looked_for_where_a_caches_bytes_go(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = cached(root)
    (snapshot / NAMES[2]).resolve().unlink()
    seen = look(root, snapshot)
    asked: list[str] = []

    def none(where: str) -> int:
        asked.append(where)
        return 0

    monkeypatch.setattr(fetch, "free", none)
    with pytest.raises(fetch.Failed, match="/blobs: "):
        bring(root, seen, of_hub(hub), snapshot)
    assert set(asked) == {str(snapshot.parents[1] / "blobs")}


def test_a_gated_repository_wants_the_token_and_gets_it(root: Path, hub: Hub) -> None:
    (root / "lab" / NAMES[2]).unlink()
    hub.repositories[REPOSITORY].token = "hf_secret"  # noqa: S105 - made here
    seen = look(root)
    (failed,) = bring(root, seen, of_hub(hub))["failed"]
    assert "status 401" in failed
    assert "HF_TOKEN" in failed
    assert bring(root, seen, of_hub(hub, "hf_secret"))["ok"] is True


def test_g05_a_revision_that_is_gone_is_said_once_and_nothing_is_lost(root: Path, hub: Hub) -> None:
    truncated(root / "lab" / NAMES[2])
    source = of_hub(hub)
    hub.force_push(REPOSITORY, {**FILES, "chat_template.jinja": b"new"})
    before = tree(root)
    (failed,) = bring(root, look(root), source)["failed"]
    assert failed.startswith(f"{NAMES[2]}: status 404")
    assert "does not have it at this revision" in failed
    assert tree(root) == before


def test_too_little_space_is_said_before_a_byte_comes(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        (root / "lab" / name).unlink()
    (root / "lab" / f"{NAMES[0]}{place.PART}").write_bytes(FILES[NAMES[0]])
    monkeypatch.setattr(fetch, "free", lambda _: 7 * 60_000 - 1)
    with pytest.raises(fetch.Failed, match="needed for 8 files"):
        bring(root, look(root), of_hub(hub))
    assert hub.sent() == {}
    monkeypatch.setattr(fetch, "free", lambda _: 7 * 60_000)
    assert bring(root, look(root), of_hub(hub))["ok"] is True


def cached(root: Path, revision: str = "1" * 40) -> Path:
    """Move the model into a Hugging Face cache; returns the snapshot."""
    repository = root / "hub" / "models--lab--tiny"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in sorted((root / "lab").iterdir()):
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


def test_links_become_files_without_a_byte_copied(root: Path) -> None:
    snapshot = cached(root)
    for path in snapshot.iterdir():
        (root / "lab" / path.name).symlink_to(path)
    seen = look(root, links="materialise")
    assert len(seen["wrong"]) == len(FILES)
    answer = bring(root, seen, None)
    assert set(answer["local"]) == set(FILES)
    assert set(answer["local"].values()) <= {"hard link", "reflink"}
    assert look(root, links="materialise")["ok"] is True
    assert not any(path.is_symlink() for path in (root / "lab").glob("*.*"))
    assert look(root, snapshot)["ok"] is True


def test_what_a_cache_of_this_host_has_does_not_cross_the_network(root: Path, hub: Hub) -> None:
    cached(root)
    answer = bring(root, look(root), of_hub(hub))
    assert answer["moved_bytes"] == 0
    assert look(root)["ok"] is True


def test_a_cache_on_another_file_system_is_copied(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(root)
    monkeypatch.setattr(place, "shared", lambda *_: None)
    answer = bring(root, look(root), None)
    assert set(answer["local"].values()) == {"copy"}
    assert look(root)["ok"] is True


@pytest.mark.parametrize("harm", HARMS)
def test_a_cache_is_repaired_in_its_blobs_and_other_revisions_stay(
    root: Path, hub: Hub, harm: Callable[[Path], None]
) -> None:
    snapshot = cached(root)
    other = snapshot.parent / ("0" * 40)
    shutil.copytree(snapshot, other, symlinks=True)
    look(root, snapshot)
    (harm if harm is not flipped else lambda p: flipped(p.resolve()))(snapshot / NAMES[3])
    answer = bring(root, look(root, snapshot), of_hub(hub), snapshot)
    assert answer["ok"] is True
    assert look(root, snapshot)["ok"] is True
    assert (snapshot / NAMES[3]).is_symlink()
    assert (other / NAMES[3]).read_bytes() == FILES[NAMES[3]]
    # A flipped or truncated blob crosses; one that only lost its link does not.
    assert answer["moved_bytes"] == (60_000 if harm in (flipped, truncated) else 0)


@pytest.fixture
def lender(root: Path) -> Iterator[Any]:
    """Another host that has the model and lends it on the loopback."""
    other = root.parent / "other"
    other.mkdir()
    for name, data in FILES.items():
        (other / name).write_bytes(data)
    files = {e["sha256"]: f"{other}/{e['name']}" for e in ENTRIES}
    with lend.Lender("127.0.0.1", files, "once") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def of_host(lender: Any, token: str = "once") -> dict[str, Any]:  # noqa: S107 - made here
    base = f"http://127.0.0.1:{lender.server_address[1]}"
    urls = {e["name"]: f"{base}/{e['sha256']}" for e in ENTRIES}
    return {"said": "spark1", "urls": urls, "token": token}


def test_the_other_host_gives_exactly_what_is_wrong_here(root: Path, lender: Any) -> None:
    flipped(root / "lab" / NAMES[1])
    (root / "lab" / NAMES[5]).unlink()
    Path(f"{root / 'lab' / NAMES[5]}{place.PART}").write_bytes(FILES[NAMES[5]][:5000])
    answer = bring(root, look(root), of_host(lender))
    assert answer["brought"] == {NAMES[1]: 60_000, NAMES[5]: 60_000}
    assert answer["moved_bytes"] == lender.sent == 115_000
    assert look(root)["ok"] is True


def test_nobody_gets_a_byte_without_the_token_of_the_run(root: Path, lender: Any) -> None:
    (root / "lab" / NAMES[5]).unlink()
    (failed,) = bring(root, look(root), of_host(lender, "guessed"))["failed"]
    assert "status 401" in failed
    assert lender.sent == 0


@pytest.mark.parametrize("path", ["", "../../etc/passwd", "%2e%2e/", NAMES[0]])
def test_nothing_but_the_files_of_the_lock_is_lent(root: Path, lender: Any, path: str) -> None:
    (root / "lab" / NAMES[0]).unlink()
    source = of_host(lender)
    source["urls"][NAMES[0]] = f"http://127.0.0.1:{lender.server_address[1]}/{path}"
    (failed,) = bring(root, look(root), source)["failed"]
    assert "status 404" in failed


def test_a_token_does_not_follow_a_redirect_to_another_address(
    root: Path, hub: Hub, lender: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's own redirect leads to its own address; here it leads to the other server."""
    given = []
    real = download.connection

    def noted(there: Any) -> Any:
        link = real(there)
        ask = link.request

        def asked(*words: str, headers: dict[str, str]) -> None:
            given.append((there.netloc, headers.get("Authorization")))
            ask(*words, headers=headers)

        link.request = asked
        return link

    monkeypatch.setattr(download, "connection", noted)
    away = f"127.0.0.2:{hub.port}"
    monkeypatch.setattr(
        download.urllib.parse,
        "urljoin",
        lambda _, place: place.replace("127.0.0.1", "127.0.0.2"),
    )
    (root / "lab" / NAMES[0]).unlink()
    bring(root, look(root), of_hub(hub, "hf_secret"))
    assert (f"127.0.0.1:{hub.port}", "Bearer hf_secret") in given
    assert {token for address, token in given if address == away} == {None}


def test_a_token_is_not_sent_on_without_encryption(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same host, but the redirect leads from https to http; both are plain sockets here."""
    given = []
    real = download.connection

    def noted(there: Any) -> Any:
        link = real(there._replace(scheme="http"))
        ask = link.request

        def asked(*words: str, headers: dict[str, str]) -> None:
            given.append((there.scheme, headers.get("Authorization")))
            ask(*words, headers=headers)

        link.request = asked
        return link

    monkeypatch.setattr(download, "connection", noted)
    (root / "lab" / NAMES[0]).unlink()
    source = of_hub(hub, "hf_secret")
    source["urls"] = {n: u.replace("http://", "https://") for n, u in source["urls"].items()}
    assert bring(root, look(root), source)["ok"] is True
    assert given == [("https", "Bearer hf_secret"), ("http", None)]
