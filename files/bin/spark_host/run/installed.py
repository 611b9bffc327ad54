"""Files of ours on the host: this program, what it left, which start of the engine it recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from typing import Any

from run.command import read

INSTALLED = "/usr/local/lib/spark-converge/spark_host"


def files(ask: dict[str, Any]) -> dict[str, Any]:
    """Files of ours on the host: {path: {mode, uid, gid, b64}} or null when absent."""
    return {p: (encoded(p) if os.path.isfile(p) else None) for p in ask["files"]}


def program(_: dict[str, Any]) -> dict[str, Any]:
    """SHA-256 over the installed program, to see whether it is the control machine's."""
    digest = hashlib.sha256()
    names = sorted(
        os.path.relpath(os.path.join(folder, name), INSTALLED)
        for folder, _folders, files in os.walk(INSTALLED)
        for name in files
        if name.endswith(".py")
    )
    for name in names:
        with open(os.path.join(INSTALLED, name), "rb") as file:
            digest.update(name.encode() + b"\0" + file.read())
    return {"sha256": digest.hexdigest() if names else None}


def record(_: dict[str, Any]) -> Any:
    text = read("/var/lib/spark-converge/generation.json")
    return json.loads(text) if text else {}


def encoded(path: str) -> dict[str, Any]:
    """A file as {"mode", "uid", "gid", "b64"}: bytes travel unharmed."""
    info = os.lstat(path)
    with open(path, "rb") as file:
        data = file.read()
    return {
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "b64": base64.b64encode(data).decode(),
    }


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
