"""Names that images of no registry were given, so that nothing takes them away: given back."""

from __future__ import annotations

from typing import Any

from run.command import Failed, run
from run.verdicts import Entry, subject, verdict

from engines import containers


def look(entry: Entry) -> dict[str, Any]:
    tag = subject(entry)
    status, found = containers.ask(f"/images/{tag}/json")
    if status != 200 or found["Id"] not in entry["ours"]:
        return verdict("same")
    if [name for name in found.get("RepoTags") or () if name != tag]:
        return verdict("restore")
    told = f"the image has no other name and would go with it; docker image rm {tag}"
    return verdict("gone", told)


def give(entry: Entry) -> None:
    code, _out, err = run(["docker", "image", "rm", "--no-prune", subject(entry)], timeout_s=120)
    if code:
        raise Failed(err.strip() or f"docker image rm: exit status {code}")
