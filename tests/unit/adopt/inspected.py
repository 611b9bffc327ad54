"""What the daemon makes of a create request, and what its inspect then says; as dockerd 28 does it.

docker_run.json has the requests that docker's own CLI 28.2 sent for three `docker create` lines.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from pathlib import Path
from typing import Any

REQUESTS = {
    one["name"]: one["body"]
    for one in json.loads((Path(__file__).parent / "docker_run.json").read_text())
}
IMAGE = {
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "NODE_RANK=0"],
    "Entrypoint": ["/entry.sh"],
    "Cmd": ["serve"],
    "WorkingDir": "/workspace",
    "Labels": {"maintainer": "mia"},
}
IMAGE_ID = "sha256:" + "5" * 64


def merged(body: dict[str, Any]) -> dict[str, Any]:
    """The Config that a container gets: the image's own where the request leaves something out."""
    config = {k: v for k, v in body.items() if k not in ("HostConfig", "NetworkingConfig")}
    config = copy.deepcopy(config)
    if not config.get("Entrypoint"):
        config["Cmd"] = config.get("Cmd") or IMAGE["Cmd"]
        if config.get("Entrypoint") is None:
            config["Entrypoint"] = IMAGE["Entrypoint"]
    if config["Entrypoint"] == [""]:
        config["Entrypoint"] = None
    given = config.get("Env") or []
    named = {pair.partition("=")[0] for pair in given}
    config["Env"] = given + [p for p in IMAGE["Env"] if p.partition("=")[0] not in named]
    config["WorkingDir"] = config.get("WorkingDir") or IMAGE["WorkingDir"]
    config["Labels"] = {**IMAGE["Labels"], **(config.get("Labels") or {})}  # type: ignore[dict-item]
    return config


def inspect(name: str, body: dict[str, Any], seed: str = "first") -> dict[str, Any]:
    """The inspect document of a running container; seed: makes its id."""
    container = hashlib.sha256(f"{name} {seed}".encode()).hexdigest()
    config, host = merged(body), copy.deepcopy(body["HostConfig"])
    host["NetworkMode"] = {"default": "bridge"}.get(host["NetworkMode"], host["NetworkMode"])
    network = host["NetworkMode"]
    if not config.get("Hostname"):
        config["Hostname"] = os.uname().nodename if network == "host" else container[:12]
    host["ShmSize"] = host["ShmSize"] or 67108864
    host["IpcMode"] = host["IpcMode"] or "private"
    host["CgroupnsMode"] = host["CgroupnsMode"] or "private"
    host["Runtime"] = host.get("Runtime") or "runc"
    if host["SecurityOpt"] is None and "host" in (host["IpcMode"], host["PidMode"]):
        host["SecurityOpt"] = ["label=disable"]
    ends = copy.deepcopy((body["NetworkingConfig"] or {}).get("EndpointsConfig", {})).get(network)
    ends = {key: (ends or {}).get(key) for key in ("IPAMConfig", "Links", "Aliases")}
    if network not in ("host", "bridge"):
        ends["Aliases"] = [*(ends["Aliases"] or []), container[:12]]
    ends |= {"NetworkID": container, "IPAddress": "172.18.0.2"}
    argv = [*(config["Entrypoint"] or ()), *(config["Cmd"] or ())]
    return {
        "Id": container,
        "Name": f"/{name}",
        "Image": IMAGE_ID,
        "Path": argv[0],
        "Args": argv[1:],
        "Created": "2026-08-26T05:59:59.5Z",
        "RestartCount": 0,
        "State": {
            "Status": "running",
            "Running": True,
            "Paused": False,
            "Restarting": False,
            "ExitCode": 0,
            "StartedAt": "2026-08-26T06:00:00.5Z",
        },
        "Config": config,
        "HostConfig": host,
        "NetworkSettings": {"Networks": {network: ends}, "Ports": {}},
        "Mounts": [],
    }
