"""The write-ahead journal: the original of everything before its first change, on the host itself.

/var/lib/spark-converge/journal/
    files/<key>.json     {"path", "existed", "mode", "uid", "gid", "b64", "saved_at"}
    settings/<key>.json  {"name", "value", "saved_at"}: unit states, default target, governors

An entry is written once (the first touch) and is on the disk, folder included, before the change.
"""

import base64
import hashlib
import json
import os
import stat
import sys
import time

ROOT = "/var/lib/spark-converge/journal"


def entry_path(kind, name):
    readable = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-80:]
    return f"{ROOT}/{kind}/{readable}.{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"


def sync_folder(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(path, data, mode, owner=None):
    """Put bytes in place whole or not at all; safe against a power cut."""
    folder = os.path.dirname(path)
    new = f"{folder}/.{os.path.basename(path)}.spark-converge-new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        if owner:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(folder)


def keep(kind, name, content):
    """Write an entry unless one is there; the first original wins."""
    path = entry_path(kind, name)
    if os.path.exists(path):
        return False
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    content["saved_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write(path, json.dumps(content, indent=1).encode(), 0o600)
    return True


def save_file(path):
    """Keep the original of one file, or that there was none."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return keep("files", path, {"path": path, "existed": False})
    content = {
        "path": path,
        "existed": True,
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
    }
    if stat.S_ISLNK(info.st_mode):
        content["link"] = os.readlink(path)
    else:
        with open(path, "rb") as file:
            content["b64"] = base64.b64encode(file.read()).decode()
    return keep("files", path, content)


def put(path, mode, owner, data):
    """Keep the original, then write the new bytes; the folder must exist or is made (0755)."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    save_file(path)
    write(path, data, mode, owner)


def remove(path):
    """Keep the original, then take the file away."""
    save_file(path)
    if os.path.lexists(path):
        os.unlink(path)
        sync_folder(os.path.dirname(path))


def entries():
    found = []
    for kind in ("files", "settings"):
        folder = f"{ROOT}/{kind}"
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".json") and not name.startswith("."):
                    with open(f"{folder}/{name}") as file:
                        found.append({"kind": kind, **json.load(file)})
    return found


def main(argv):
    """put PATH MODE UID GID < base64; remove PATH; save PATH...; setting NAME VALUE ...; list"""
    action, rest = argv[0], argv[1:]
    if action == "put":
        path, mode, uid, gid = rest
        data = base64.b64decode(sys.stdin.read(), validate=False)
        put(path, int(mode, 8), (int(uid), int(gid)), data)
    elif action == "remove":
        remove(rest[0])
    elif action == "save":
        for path in rest:
            save_file(path)
    elif action == "setting":
        for name, value in zip(rest[::2], rest[1::2]):
            keep("settings", name, {"name": name, "value": value})
    elif action == "list":
        return {"entries": entries()}
    else:
        raise ValueError(f"unknown action {action}")
    return {}
