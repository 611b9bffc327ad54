"""What a container was made from, out of its inspect document: enough to make the same once more.

A recipe holds the whole environment: it stays on this host, in files of root's alone; others get
its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

PROJECT = "com.docker.compose.project"
# Networks that are always there and that nobody gives settings to.
BUILT_IN = ("host", "none", "bridge", "default")
GIVEN = ("Aliases", "DriverOpts", "IPAMConfig", "Links")


def recipe(one: dict[str, Any]) -> dict[str, Any]:
    """The parts of an inspect document that somebody asked for when the container was made."""
    config, host = dict(one["Config"]), dict(one["HostConfig"])
    usual = os.uname().nodename if host.get("NetworkMode") == "host" else one["Id"][:12]
    if config.get("Hostname") == usual:  # the daemon's own choice, made anew each time
        del config["Hostname"]
    return {
        "name": one["Name"].lstrip("/"),
        "image": one["Image"],
        "config": config,
        "host": host,
        "networks": networks(one),
    }


def networks(one: dict[str, Any]) -> dict[str, Any]:
    """{network: what was asked of it}, those of people only; an id as alias is docker's."""
    found = (one.get("NetworkSettings") or {}).get("Networks") or {}
    asked = {}
    for name, ends in found.items():
        if name in BUILT_IN:
            continue
        given = {key: ends.get(key) for key in GIVEN if ends.get(key)}
        aliases = [word for word in given.pop("Aliases", ()) if word != one["Id"][:12]]
        asked[name] = {**given, "Aliases": aliases} if aliases else given
    return asked


def body(made: dict[str, Any], reference: str) -> dict[str, Any]:
    """What POST /containers/create wants for a recipe, with its image under this name.

    An entrypoint that was taken away must be said to be none: the image's own comes back else.
    """
    config = {**made["config"], "Image": reference}
    if config.get("Entrypoint") is None:
        config["Entrypoint"] = [""]
    ends = {"EndpointsConfig": made["networks"]}
    return {**config, "HostConfig": made["host"], "NetworkingConfig": ends}


def filled(value: Any) -> Any:
    """Without what is empty: a newer daemon says more keys of nothing."""
    if isinstance(value, dict):
        inner = {key: filled(one) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one not in (None, "", [], {}, 0, False)}
    return [filled(one) for one in value] if isinstance(value, list) else value


def digest(made: dict[str, Any]) -> str:
    """SHA-256 of a recipe, however its image is spelled: by its id it is in there."""
    config = {key: one for key, one in made["config"].items() if key != "Image"}
    return canonical(filled({**made, "config": config}))


def total(recipes: Iterable[dict[str, Any]]) -> str:
    """SHA-256 of all containers of a rank, whatever their order."""
    return canonical(sorted(digest(one) for one in recipes))


def canonical(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
