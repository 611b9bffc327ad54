"""What the journal has written, read back only when it is whole.

A document is {"sha256": of its text, "entry": {...}}: a byte that changed on the disk is seen. The
version before wrote the bare entry. The two cannot be taken for one another: a bare entry has its
own keys at the top and no other, a sealed one these two, whatever single one of them is damaged or
lost. Of a bare one only its form can be checked: types, base64, its name against its file's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from typing import Any

CONTENT = {"existed", "mode", "uid", "gid", "b64", "link", "xattrs"}
FILE = CONTENT | {"path", "saved_at", "ours", "written", "tag", "edits", "made"}
MODES = 0o7777
SETTING = {"name", "value", "saved_at", "ours"}


def digest_of(entry: Any) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def seal(entry: dict[str, Any]) -> bytes:
    return json.dumps({"sha256": digest_of(entry), "entry": entry}, indent=1).encode()


def opened(path: str, is_whole: Callable[[Any], bool]) -> dict[str, Any]:
    """The entry of a document; raises FileNotFoundError, and ValueError naming a damaged one.

    is_whole: has it the form of an entry?
    """
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ValueError("not a file")
        with open(path, "rb") as file:
            found = json.loads(file.read().decode())
        if isinstance(found, dict) and found.keys() == {"sha256", "entry"}:
            if found["sha256"] != digest_of(found["entry"]):
                raise ValueError("not what was written")
            found = found["entry"]
        if not is_whole(found):
            raise ValueError("not the form of an entry")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError):
        raise damaged(path) from None
    entry: dict[str, Any] = found
    return entry


def damaged(path: str) -> ValueError:
    return ValueError(
        f"{path} is damaged, and what it kept cannot be given back from it: set that right by "
        "hand if it is not, then move this file away"
    )


def decoded(b64: str) -> bytes:
    """Raises ValueError for all but the one base64 form of some bytes."""
    data = base64.b64decode(b64, validate=True)
    if base64.b64encode(data).decode() != b64:
        raise ValueError("not the base64 of anything")
    return data


def is_base64(text: object) -> bool:
    try:
        return isinstance(text, str) and decoded(text) is not None
    except ValueError:
        return False


def is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def is_content(found: object) -> bool:
    """As journal.content() gives it."""
    if not isinstance(found, dict) or found.get("existed") is not True:
        return isinstance(found, dict) and found.get("existed") is False
    xattrs = found.get("xattrs", {})
    return (
        all(is_number(found.get(name)) for name in ("mode", "uid", "gid"))
        and found["mode"] <= MODES
        and ("b64" in found) != ("link" in found)
        and (is_base64(found["b64"]) if "b64" in found else isinstance(found["link"], str))
        and isinstance(xattrs, dict)
        and all(map(is_base64, xattrs.values()))
    )


def is_file(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() <= FILE
        and isinstance(entry.get("path"), str)
        and entry["path"].startswith("/")
        and is_content(entry)
        and are_texts(entry.get("ours"))
        and (entry.get("written") is None or is_base64(entry["written"]))
        and isinstance(entry.get("tag", ""), (str, type(None)))
        and isinstance(entry.get("edits"), list)
        and all(map(is_content, entry["edits"]))
        and are_texts(entry.get("made", []))
    )


def is_setting(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == SETTING
        and isinstance(entry["name"], str)
        and isinstance(entry["value"], str)
        and are_texts(entry["ours"])
    )


def is_record(found: object) -> bool:
    """As systemd/links.py keeps it while systemctl is at work."""
    return (
        isinstance(found, dict)
        and found.keys() == {"units", "links"}
        and are_texts(found["units"])
        and isinstance(found["links"], dict)
        and all(map(is_content, found["links"].values()))
    )


FORMS = {"files": is_file, "settings": is_setting}
