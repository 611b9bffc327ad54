"""The containers, as docker has them, and a real completion."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from datetime import datetime
from typing import Any

from testinfra.host import Host

from inventory.schema import Cluster, Node
from stacks.definition import Stack
from tests.acceptance.look import containers, read

LABEL = "io.spark-converge."


def test_nothing_is_there_but_the_wanted_rank(
    host: Host, cluster: Cluster, stack: Stack, node: Node
) -> None:
    # Where the owner lets other containers be stopped, they are kept, but do not run.
    found = containers(host)
    if cluster.policy.foreign_containers == "refuse":
        assert len(found.names) == 1, found.names
    labels = found.one["Config"]["Labels"]
    if stack.compose is not None:
        assert labels["com.docker.compose.project"] == stack.compose.project
    else:
        assert (labels[f"{LABEL}stack"], labels[f"{LABEL}rank"]) == (stack.name, str(node.rank))


def test_podman_runs_no_engine_of_the_stack(host: Host, stack: Stack) -> None:
    """Each container of podman's has a monitor that names it."""
    names = re.findall(r" -n (\S+)", read(host, "ps -C conmon -o args= || true"))
    patterns = stack.recognise.name_patterns
    assert [name for name in names if any(fnmatch.fnmatch(name, p) for p in patterns)] == []


def test_rank_runs_the_locked_image(host: Host, stack: Stack) -> None:
    assert stack.lock is not None, stack.unlocked
    wanted = f"{stack.repository}@{stack.lock.image.index}"
    assert containers(host).one["Config"]["Image"] == wanted
    # Both image stores name an image by its repository digest; its id is another in each.
    (image,) = json.loads(read(host, f"docker image inspect {shlex.quote(wanted)}"))
    assert wanted in image["RepoDigests"]
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[image["Architecture"]]
    assert read(host, "uname -m").strip() == machine


def test_rank_does_not_come_back_by_itself(host: Host, stack: Stack) -> None:
    wanted = "no" if stack.container is not None else "unless-stopped"
    assert containers(host).one["HostConfig"]["RestartPolicy"]["Name"] == wanted


def test_all_ranks_run_since_one_and_the_same_launch(
    pair: list[tuple[Node, Host]], stack: Stack
) -> None:
    seen = [containers(host).one for _, host in pair]
    assert [one["RestartCount"] for one in seen] == [0] * len(seen)
    launches = {one["Config"]["Labels"].get(f"{LABEL}generation") for one in seen}
    assert len(launches) == 1, launches
    head, *workers = [started(one) for one in seen]
    for worker in workers:
        # Workers start first; the hosts' clocks may differ by less than the head's delay.
        assert (worker - head).total_seconds() < stack.start.head_delay_s


def started(container: dict[str, Any]) -> datetime:
    """When the container was last started; docker writes nanoseconds, which Python cannot hold."""
    text = container["State"]["StartedAt"]
    return datetime.fromisoformat(text[:19] + "+00:00")


def test_head_answers_a_real_completion(head: Host, stack: Stack) -> None:
    """/health and /v1/models go on saying 200 after a worker has died: they prove nothing."""
    question = {
        "model": stack.serve.model_name,
        "messages": [{"role": "user", "content": "What is 17*23? Answer with the number."}],
        "max_tokens": 512,
    }
    text = read(
        head,
        f"curl --silent --show-error --max-time {stack.deadlines.canary_s} --noproxy '*' "
        f"--header 'Content-Type: application/json' --data {shlex.quote(json.dumps(question))} "
        f"http://127.0.0.1:{stack.ports.api}/v1/chat/completions",
    )
    answer = json.loads(text)
    assert answer["model"] == stack.serve.model_name
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] >= 1
