"""What docker, a log or a secret would make of a stack's values is said before a host is asked."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from facts.engines.containers import Podman
from inventory import values
from operations.engines import recognise
from stacks import definition, patterns, template
from tests.unit.on_host import module
from tests.unit.stacks.test_stacks_definition import change, folder, lock, mistakes, with_name

__all__ = ["folder"]


def container(folder: Path, **keys: Any) -> None:
    data = yaml.safe_load((folder / "lab.yaml").read_text(encoding="utf-8"))
    change(folder, container=data["container"] | keys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "-spark"), ("name", "a b"), ("name", "x"), ("name", "spark/{{ rank }}"),
        ("name", "spark-{{ rnak }}"), ("name", ""), ("name", "\x1b[31m"), ("name", "x" * 70_000),
        ("volumes", ["/srv"]), ("volumes", ["srv/models:/models"]), ("volumes", ["/srv:models"]),
        ("volumes", ["/srv:/models:rx"]), ("volumes", ["/srv:/models:ro:z"]), ("volumes", [":/a"]),
        ("volumes", ["/a:/m", "/b:/m"]), ("volumes", ["/a:/m", "{{ model_dir }}:/m/:ro"]),
        ("volumes", ["/srv:/"]), ("volumes", ["{{ 'a' * 10**9 }}:/m"]),
        ("ulimits", {"memlok": "-1"}), ("ulimits", {"memlock": "unlimited"}),
        ("ulimits", {"nofile": "2:1"}), ("ulimits", {"nofile": "-1:1"}), ("ulimits", {"core": ""}),
        ("ulimits", {"stack": "-2"}), ("ulimits", {"stack": "9" * 70_000}),
        ("cap_add", ["IPC_LOK"]), ("cap_add", ["ipc_lock"]), ("cap_add", ["CAP_"]),
        ("devices", ["/etc/passwd"]), ("devices", ["infiniband"]), ("devices", ["/dev/../etc"]),
        ("memory", "1k"), ("memory", "5m"), ("memory", "112G"), ("shm_size", "0m"),
        ("stop_grace_s", "30"), ("stop_grace_s", True), ("shell_command", "yes"),
        ("entrypoint", [""]), ("entrypoint", ["a\0b"]), ("env_files", ["secrets.env"]),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_docker_would_refuse_at_a_launch_is_one_line(
    folder: Path, key: str, value: Any
) -> None:
    container(folder, **{key: value})
    (line,) = mistakes(folder, "lab")
    assert f": container.{key}" in line
    assert line.isprintable()
    assert len(line) < 700


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "GLM_Spark.{{ rank }}"), ("name", "{{ stack }}-{{ rank }}"),
        ("volumes", ["models:/models:ro,z"]), ("volumes", []),
        ("ulimits", {"nofile": "1024:-1", "memlock": "-1:-1"}),
        ("cap_add", ["CAP_IPC_LOCK", "ALL"]),
        ("memory", "6m"), ("env_files", ["/etc/spark/secrets.env"]), ("devices", ["/dev/fuse/"]),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_docker_takes_is_taken(folder: Path, key: str, value: Any) -> None:
    container(folder, **{key: value})
    assert definition.load("lab").container is not None


def test_two_things_cannot_listen_on_one_port(folder: Path) -> None:
    change(folder, ports={"api": 8888, "rendezvous": 8888})
    (line,) = mistakes(folder, "lab")
    assert line.endswith("8888 found; api has it too, a different one expected")


CATASTROPHES = [
    r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"(.*)*x", r"(x+x+)+y", r"^(\d+)*$", r"(?:a?){30}a{30}",
    r"^(([a-z])+.)+[A-Z]([a-z])+$", r".*.*.*.*x", r"\d+\d+\d+\d+x", r"([a-zA-Z]+)*!",
    r"(?:.*,){12}P", r"(\w+\s?)*$", r"\d+(?:a|)\d+(?:a|)\d+(?:a|)\d+x", r"(?=(a+))a*b\1",
]  # fmt: skip


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_a_pattern_that_could_take_for_ever_is_refused(folder: Path, pattern: str) -> None:
    began = time.monotonic()
    data = yaml.safe_load((folder / "lab.yaml").read_text(encoding="utf-8"))
    change(folder, log=data["log"] | {"ready": pattern})
    (line,) = mistakes(folder, "lab")
    assert ": log.ready: " in line
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "pattern",
    [r"loading shard \d+", r"loading (shard) \d+", r"(\d+) of (\d+)", r"(\d*) of", r"(\d+)? of",
     r"(?:x|(\d+))", r"(\w+) of", r"(\d+\.\d+) s"],
)  # fmt: skip
def test_progress_is_counted_by_one_number_that_is_always_there(folder: Path, pattern: str) -> None:
    data = yaml.safe_load((folder / "lab.yaml").read_text(encoding="utf-8"))
    change(folder, log=data["log"] | {"progress": [pattern]})
    (line,) = mistakes(folder, "lab")
    assert line.endswith("one group, which is a number such as (\\d+) and always there, expected")


@pytest.mark.parametrize("pattern", ["(" * 300, "[", "a{1,99999999999}", "x" * 501, "(?P<1>x)"])
def test_what_is_no_expression_is_said(pattern: str) -> None:
    assert patterns.trouble(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"Capturing batches.*?(\d+)/\d+", r"^\[.*\] step (\d+)", r"(\d+)\s+\d+\s+\d+", r"(\d+)%\|.*\|",
     r"Loading \w+: +(\d+)% Completed \| \d+/\d+", r"(?i:shard) (\d{1,5})"],
)  # fmt: skip
def test_an_expression_of_the_kind_that_logs_need_is_taken_and_soon_done(pattern: str) -> None:
    assert patterns.trouble(pattern) is None
    assert patterns.counts(pattern)
    began = time.monotonic()
    for line in ("1" * 500, "[" * 500, "Capturing batches" * 30, "step 1" * 80, " " * 500):
        re.search(pattern, line)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("value", [{"stack": "lab"}, None, "x", lock("lab")])
def test_a_lock_inside_a_definition_is_refused_with_its_place(folder: Path, value: Any) -> None:
    path = folder / "lab.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + yaml.safe_dump({"lock": value}), encoding="utf-8")
    (line,) = mistakes(folder, "lab")
    assert "lock: found; lab.lock.yaml is the lock, `make lock STACK=lab` writes it" in line


SECRET = "hf_" + "Zx" * 17


@pytest.mark.parametrize(
    "keys",
    [
        {"env": {"HF_TOKEN": SECRET}},
        {"env": {"HF_TOKEN": 12345678}},
        {"env": {"VLLM_API_KEY": "{{ stack }}"}},
        {"env": {"HUGGING_FACE_HUB_TOKEN": "x"}},
        {"env": {"AWS_SECRET_ACCESS_KEY": "x"}},
        {"env": {"EXTRA": SECRET}},
        {"env": {"EXTRA_ARGS": "--api-key Zx123"}},
        {"env": {"HF_ENDPOINT": "https://milo:Zx123@hub.example.net"}},
        {"command": ["serve", "--api-key=Zx123"]},
        {"command": ["serve", "--api-key", "Zx123"]},
        {"command": ["serve", "--admin-api-key=Zx123"]},
        {"command": ["serve", "--hf-token", "Zx123"]},
        {"command": ["HF_TOKEN=Zx123 exec serve"]},
        {"command": ["sh", "-c", f"login {SECRET}"]},
    ],
    ids=str,
)
def test_a_secret_in_a_definition_is_refused_unseen_with_the_way_named(
    folder: Path, keys: dict[str, Any]
) -> None:
    change(folder, **keys)
    said = "\n".join(mistakes(folder, "lab"))
    assert "container.env_files" in said
    assert not any(word in said for word in (SECRET, "Zx123", "12345678"))


@pytest.mark.parametrize(
    "keys",
    [{"env": {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "5", "HF_HOME": "/c"}},
     {"command": ["--max-num-batched-tokens", "3584", "--tokenizer=/m", "--skip-tokenizer-init"]}],
)  # fmt: skip
def test_what_only_sounds_like_a_secret_is_none(folder: Path, keys: dict[str, Any]) -> None:
    change(folder, **keys)
    assert definition.load("lab").name == "lab"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("vllm-node", "vllm-node"),
        ("vllm-node:latest", "vllm-node"),
        ("docker.io/library/vllm-node", "vllm-node"),
        ("docker.io/vllm/vllm-openai:v1", "vllm/vllm-openai"),
        ("10.0.2.100:5000/lab-engine", "10.0.2.100:5000/lab-engine"),
        ("localhost:5000/x:y@sha256:" + "0" * 64, "localhost:5000/x"),
        ("Registry.example.NET/x", "Registry.example.NET/x"),
    ],
)
def test_an_image_is_known_by_its_name_where_docker_would_look(text: str, means: str) -> None:
    assert TypeAdapter(values.ImageSign).validate_python(text) == means


@pytest.mark.parametrize(
    "text",
    ["VLLM", "a..b/c", "a/b/", "/a", "a//b", "a b", "x:99999/y", "-a", "a/-b", "0" * 64, "",
     "a/B", "\x1b[31m", "http://a/b", "a" * 300],
)  # fmt: skip
def test_an_image_that_docker_would_not_name_so_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(values.Repository).validate_python(text)


@pytest.mark.parametrize(
    "text",
    ["{{ 10**10**10 }}", "{{ 'a' * 1000000000 }}", "{% for i in range(100000) %}x{% endfor %}",
     "{{ ''.__class__.mro() }}", "{{ 'a'|center(1000000000) }}", "{{ " + "(" * 5000, "{{ a.b(c) }}",
     "{% include 'x' %}", "{{ " + "9" * 5000 + " }}", "{" * 100_001],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_a_placeholder_names_a_value_and_no_more(text: str) -> None:
    began = time.monotonic()
    assert template.syntax_error(text)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model-00001-of-00001.safetensors/x", "a file or a folder expected"),
        ("model-00001-of-00001.safetensors/x/y", "a file or a folder expected"),
        (".spark-converge-aside/x", "not one of this project's own"),
        ("x.spark-converge-part", "not one of this project's own"),
        ("n" * 236, "a name that a disk takes"),
    ],
)
def test_a_name_that_no_folder_can_hold_beside_the_others_is_refused(
    folder: Path, name: str, said: str
) -> None:
    (folder / "lab.lock.yaml").write_text(with_name(name), encoding="utf-8")
    (line,) = mistakes(folder, "lab")
    assert said in line


@pytest.mark.parametrize(
    "image",
    ["vllm-node", "vllm-node:latest", "docker.io/library/vllm-node:nightly",
     "localhost/vllm-node:latest", f"vllm-node@sha256:{'0' * 64}"],
)  # fmt: skip
def test_a_container_of_a_local_image_is_known_on_both_sides_of_the_wire(
    folder: Path, image: str
) -> None:
    change(folder, recognise={"image_repositories": ["vllm-node"]})
    stack = definition.load("lab")
    assert recognise.signed(Podman("engine", image, "milo"), stack)
    assert not recognise.signed(Podman("engine", f"other/{image}", "milo"), stack)
    signs = {"image_repositories": list(stack.recognise.image_repositories)}
    assert module("engines.engines").named("engine", image, signs)
    assert not module("engines.engines").named("engine", f"other/{image}", signs)
