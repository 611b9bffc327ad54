"""What nvidia-smi says of the GPUs. Read by verify, and where clocks of the GPU are wanted."""

from __future__ import annotations

from typing import Any

from run.command import run

PROBE_S = 10  # a driver that hangs must not hold up the others' answer
FIELDS = (
    "name,driver_version,vbios_version,temperature.gpu,clocks.sm,clocks_event_reasons.active,"
    "clocks.max.sm,memory.total"
)


def gpus() -> list[dict[str, str]] | dict[str, str] | None:
    """One dict of FIELDS for each GPU; None without nvidia-smi. GB10 answers [N/A] to some."""
    status, out, err = run(
        ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"], PROBE_S
    )
    if status == 127:
        return None
    if status:
        return {"unread": (err or out).strip() or f"nvidia-smi: exit status {status}"}
    names = FIELDS.split(",")
    rows = [[word.strip() for word in line.split(",")] for line in out.splitlines() if line.strip()]
    found = [dict(zip(names, row)) for row in rows if len(row) == len(names)]
    return found or {"unread": "nvidia-smi named no GPU"}


def section(_: dict[str, Any]) -> dict[str, Any]:
    return {"gpus": gpus()}
