"""Images on the host, asked for by digest."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Image:
    """digests: repository digests ("repo@sha256:..."), the only thing comparable across hosts:
    the image id differs between overlay2 and the containerd store. platform: linux/arm64;
    manifest: digest of that platform's manifest, None where the daemon does not say."""

    id: str
    digests: tuple[str, ...]
    platform: str
    manifest: str | None


@dataclass(frozen=True)
class Images:
    """reference -> image, or None when it is not on this host."""

    found: dict[str, Image | None]


def parse(section: Section) -> Images:
    return Images(
        {
            reference: None
            if one is None
            else Image(
                one["id"],
                tuple(one["digests"]),
                one["platform"],
                one.get("manifest"),
            )
            for reference, one in section.items()
        }
    )
