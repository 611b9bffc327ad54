"""Model files against their manifest: names, sizes, SHA-256; without filling the page cache.

What a full read has proven is kept in /var/lib/spark-converge/shards with size, mtime_ns, ctime_ns
and inode of every file, so that an unchanged directory is confirmed without reading it again.
"""

import concurrent.futures
import hashlib
import json
import os
import stat
import sys
import time

RECORDS = "/var/lib/spark-converge/shards"
CHUNK_BYTES = 1 << 22


def record_path(directory, lock):
    key = hashlib.sha256(f"{directory}\0{lock}".encode()).hexdigest()[:24]
    return f"{RECORDS}/{key}.json"


def identity(path):
    info = os.stat(path)
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def section(ask):
    """{directory: "verified" | "changed" | "unverified" | "absent"} for each asked pair."""
    answer = {}
    for directory, lock in ask["shards"]:
        answer[directory] = state(directory, lock)
    return answer


def state(directory, lock):
    if not os.path.isdir(directory):
        return "absent"
    try:
        with open(record_path(directory, lock)) as file:
            record = json.load(file)
    except (OSError, ValueError):
        return "unverified"
    try:
        same = all(identity(f"{directory}/{name}") == was for name, was in record["files"].items())
    except OSError:
        return "changed"
    return "verified" if same and extra(directory, record["files"]) == [] else "changed"


def extra(directory, wanted):
    """Weight files beside the manifest's: an engine that globs *.safetensors would load them."""
    return sorted(
        n for n in os.listdir(directory) if n.endswith(".safetensors") and n not in wanted
    )


def sha256(path):
    """Digest of one file; its pages leave the cache behind the reader."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        done = 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            os.posix_fadvise(fd, done, len(chunk), os.POSIX_FADV_DONTNEED)
            done += len(chunk)
    return digest.hexdigest()


def check(directory, entry):
    """None when the file is as the manifest says, else a sentence that names it."""
    name, path = entry["name"], f"{directory}/{entry['name']}"
    try:
        info = os.stat(path)
    except FileNotFoundError:
        what = "a dangling link" if os.path.islink(path) else "missing"
        return f"{name}: {what}"
    except OSError as error:
        return f"{name}: cannot be read ({error.strerror})"
    if not stat.S_ISREG(info.st_mode):
        return f"{name}: not a regular file"
    if info.st_size != entry["size"]:
        return f"{name}: {info.st_size} bytes found, {entry['size']} expected"
    before = identity(path)
    try:
        found = sha256(path)
    except OSError as error:
        return f"{name}: cannot be read ({error.strerror})"
    if identity(path) != before:
        return f"{name}: changed while it was read"
    if found != entry["sha256"]:
        return f"{name}: SHA-256 {found} found, {entry['sha256']} expected"
    return None


def verify(directory, lock, entries, tell):
    """Check every entry; the record is written only when all are right."""
    total = sum(e["size"] for e in entries)
    if not os.path.isdir(directory):
        return {"ok": False, "faults": [f"{directory}: no such directory"], "bytes": 0, "files": 0}
    began, done_bytes, faults, told = time.monotonic(), 0, [], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = {pool.submit(check, directory, entry): entry for entry in entries}
        for job in concurrent.futures.as_completed(jobs):
            fault = job.result()
            done_bytes += jobs[job]["size"]
            if fault:
                faults.append(fault)
            if time.monotonic() - told > 2:
                told = time.monotonic()
                tell(done_bytes, total, told - began)
    faults += [
        f"{name}: not in the manifest" for name in extra(directory, {e["name"] for e in entries})
    ]
    if not faults:
        keep(directory, lock, entries)
    return {
        "ok": not faults,
        "faults": sorted(faults),
        "bytes": done_bytes,
        "files": len(entries),
        "seconds": round(time.monotonic() - began, 2),
    }


def keep(directory, lock, entries):
    os.makedirs(RECORDS, mode=0o755, exist_ok=True)
    files = {e["name"]: identity(f"{directory}/{e['name']}") for e in entries}
    path = record_path(directory, lock)
    with open(path + ".new", "w") as file:
        json.dump({"directory": directory, "lock": lock, "files": files}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def main(argv):
    """verify DIRECTORY LOCK < entries.json: progress lines go to standard error."""
    directory, lock = argv[1], argv[2]
    entries = json.load(sys.stdin)

    def tell(done, total, seconds):
        left_s = seconds * (total - done) / done if done else 0
        sys.stderr.write(f"{done}/{total} bytes, about {left_s:.0f} s left\n")
        sys.stderr.flush()

    return verify(directory, lock, entries, tell)
