"""Images that the docker daemon has, by the references that a job asks for."""

from __future__ import annotations

import re
from typing import Any

from run.command import Failed

from engines import containers


def quoted(reference: str) -> str:
    """For the path of a request; by hand, since urllib costs a slow host more than this asks."""
    odd = re.compile(r"[^\w/:@.~-]", re.ASCII)
    return odd.sub(lambda one: "".join(f"%{byte:02X}" for byte in one[0].encode()), reference)


def section(wanted: dict[str, Any]) -> dict[str, Any]:
    """{reference: {id, digests, platform, manifest} or null when the image is not on this host}.

    manifest: digest of this platform's manifest; the containerd store says it from docker 28 on.
    """
    answer = {}
    for reference in wanted["images"]:
        status, one = containers.ask(f"/images/{quoted(reference)}/json?manifests=1")
        if status not in (200, 404):
            raise Failed(f"the docker daemon says {status}: {one}")
        answer[reference] = (
            {
                "id": one["Id"],
                "digests": one.get("RepoDigests") or [],
                "platform": f"{one['Os']}/{one['Architecture']}",
                "manifest": manifest(one),
            }
            if status == 200
            else None
        )
    return answer


def manifest(image: dict[str, Any]) -> str | None:
    """Digest of the one platform's manifest whose content is here; null when that is not said."""
    here = [
        one["Descriptor"]["digest"]
        for one in image.get("Manifests") or []
        if one.get("Kind") == "image" and one.get("Available")
    ]
    return here[0] if len(here) == 1 else None
