"""The on-host program files/bin/spark_host: where it lies here and there, and its sum."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "files" / "bin" / "spark_host"
INSTALLED = "/usr/local/lib/spark-converge/spark_host"
END = "--end of spark-host--"


def sources() -> list[str]:
    """The program's files below PROGRAM, in the order that both sides sum them."""
    return sorted(str(path.relative_to(PROGRAM)) for path in PROGRAM.rglob("*.py"))


@cache
def program_sha256() -> str:
    """The same sum as the host takes over its installed copy."""
    digest = hashlib.sha256()
    for name in sources():
        digest.update(name.encode() + b"\0" + (PROGRAM / name).read_bytes())
    return digest.hexdigest()


@cache
def program_archive() -> str:
    """The on-host program as a zip that python3 can run, in base64."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sources():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, (PROGRAM / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return base64.b64encode(buffer.getvalue()).decode()
