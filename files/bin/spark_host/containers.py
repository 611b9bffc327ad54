"""Containers and images of the docker daemon. A daemon that does not answer is an error."""

import json

from run import Failed, run

KEPT = ("Id", "Name", "RestartCount", "Image", "Created")


def inspect_all():
    status, out, err = run(["docker", "ps", "--all", "--quiet", "--no-trunc"])
    if status == 127:
        return None
    if status:
        raise Failed(err.strip() or "docker ps failed")
    names = out.split()
    if not names:
        return []
    status, out, err = run(["docker", "inspect", "--type", "container", *names])
    try:
        return json.loads(out)  # one that vanished in between only costs the exit status
    except ValueError:
        raise Failed(err.strip() or "docker inspect failed") from None


def section(_):
    """{"installed": bool, "containers": [...]}: environments and arguments stay on the host."""
    found = inspect_all()
    return {
        "installed": found is not None,
        "containers": [
            {
                **{key: one.get(key) for key in KEPT},
                "State": {
                    key: one["State"].get(key)
                    for key in ("Status", "Running", "ExitCode", "StartedAt", "Restarting")
                },
                "Reference": one["Config"].get("Image"),
                "Labels": one["Config"].get("Labels") or {},
                "Restart": one["HostConfig"].get("RestartPolicy", {}).get("Name"),
            }
            for one in found or []
        ],
    }


def images(ask):
    """{reference: {id, digests, platform} or null when the image is not on this host}."""
    answer = {}
    for reference in ask["images"]:
        status, out, err = run(["docker", "image", "inspect", reference])
        if status and "No such image" not in err:
            raise Failed(err.strip() or "docker image inspect failed")
        one = json.loads(out)[0] if status == 0 else None
        answer[reference] = one and {
            "id": one["Id"],
            "digests": one.get("RepoDigests") or [],
            "platform": f"{one['Os']}/{one['Architecture']}",
        }
    return answer
