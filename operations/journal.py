"""Commands that change a file or a setting only after its original is in the host's journal."""

from __future__ import annotations

import base64

from pyinfra.api.command import StringCommand

from operations.remote import spark_host


def quiet(*arguments: str) -> str:
    """A spark-host call whose answer nobody needs."""
    return spark_host(*arguments) + " > /dev/null"


def put(path: str, data: bytes, mode: int, uid: int = 0, gid: int = 0) -> StringCommand:
    """Write a file whole, owner and mode included; its original is kept first."""
    command = quiet("journal", "put", path, f"{mode:o}", str(uid), str(gid))
    return StringCommand(command, _stdin=base64.b64encode(data).decode())


def setting(name: str, value: str) -> str:
    """Keep how a setting was found; the first value wins."""
    return quiet("journal", "setting", name, value)
