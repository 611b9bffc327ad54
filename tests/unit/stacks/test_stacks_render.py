"""From definition, cluster and fabric to what a rank runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.schema import Cluster
from lab.engine import options
from stacks import definition, template
from stacks.definition import StackError
from stacks.render import FabricFacts, RankSpec, mount, rank_spec
from stacks.schema import Stack

FABRIC = FabricFacts(
    interface="bond0",
    address="192.168.100.1",
    cidr="192.168.100.0/24",
    hcas=("rocep1s0f0",),
    gid_indexes={"rocep1s0f0": 1},
)
LAB = definition.load("lab")


def cluster(workers: int = 1) -> Cluster:
    hosts = [
        {"name": f"s{rank}", "address": f"192.0.2.{rank}", "fabric_address": f"192.168.100.{rank}"}
        for rank in range(1, workers + 2)
    ]
    return Cluster.model_validate(
        {
            "ssh": {"user": "ci"},
            "head": hosts[0],
            "workers": hosts[1:],
            "fabric": {"interfaces": ["a0", "a1"]},
            "stack": "lab",
            "model_dir": "/srv/models",
        }
    )


def changed(stack: Stack, **sections: Any) -> Stack:
    """`stack` with keys of some sections replaced: `changed(LAB, container={"shm_size": "1g"})`."""
    data = stack.model_dump()
    for section, keys in sections.items():
        data[section] = data[section] | keys if isinstance(keys, dict) else keys
    return Stack.model_validate(data).model_copy(update={"lock": stack.lock})


def lab(stack: Stack = LAB, *, rank: int = 0, fabric: FabricFacts = FABRIC) -> RankSpec:
    return rank_spec(stack, cluster(), rank, fabric)


def test_the_command_line_names_rank_world_head_and_own_address() -> None:
    spec = rank_spec(LAB, cluster(workers=3), 2, replace(FABRIC, address="192.168.100.3"))
    assert spec.host == "s3"
    for word in (
        "--rank=2",
        "--nnodes=4",
        "--master-addr=192.168.100.1",
        "--master-port=25000",
        "--bind-ip=192.168.100.3",
        "--model-path=/models/lab",
    ):
        assert word in spec.command
    assert spec.container_name == "spark-lab-2"
    assert spec.rendezvous == "192.168.100.1:25000"


def test_the_lab_engine_takes_the_command_line() -> None:
    took = options.parse(list(lab(rank=1).command))
    assert (took.rank, took.nnodes, took.port) == (1, 2, 8888)
    assert took.served_model_name == LAB.serve.model_name


def test_options_come_before_the_image_and_the_command_after_it() -> None:
    spec = lab()
    argv = list(spec.create_argv)
    assert argv[:4] == ["docker", "create", "--name", "spark-lab-0"]
    assert argv[argv.index(spec.image) + 1 :] == list(spec.command)
    before = argv[2 : argv.index(spec.image)]
    options = list(zip(before[::2], before[1::2], strict=True))
    assert all(option.startswith("--") for option, _ in options)
    assert [value for option, value in options if option == "--label"] == [
        f"{key}={value}" for key, value in spec.labels.items()
    ]
    assert dict(value.split("=", 1) for option, value in options if option == "--env") == spec.env


def test_labels_carry_what_decides_whether_the_rank_is_the_wanted_one() -> None:
    spec = lab(rank=1)
    assert spec.labels == {
        "io.spark-converge.stack": "lab",
        "io.spark-converge.rank": "1",
        "io.spark-converge.world": "2",
        "io.spark-converge.spec": spec.spec,
    }


def test_a_shell_entrypoint_gets_the_command_as_one_quoted_word() -> None:
    stack = changed(
        LAB,
        container={"entrypoint": ["/bin/bash", "-lc"], "shell_command": True},
        command=["serve", "two words", "{{ rank }}"],
    )
    argv = lab(stack).create_argv
    assert argv[-2:] == ("-lc", "exec serve 'two words' 0")
    assert shlex.split(argv[-1])[1:] == ["serve", "two words", "0"]
    assert argv[argv.index("--entrypoint") + 1] == "/bin/bash"


def test_a_memory_limit_is_one_without_swap() -> None:
    argv = lab(changed(LAB, container={"memory": "112g"})).create_argv
    assert argv[argv.index("--memory") + 1] == argv[argv.index("--memory-swap") + 1] == "112g"
    assert "--memory" not in lab().create_argv


def test_a_compose_stack_names_its_project_and_creates_nothing() -> None:
    spec = lab(definition.load("dsf-lab"))
    assert spec.create_argv == ()
    assert spec.compose is not None
    assert (spec.compose.project, spec.compose.file) == ("dsf-lab", "compose.yaml")
    assert spec.container_name == "dsf-lab-engine-1"


def test_an_empty_variable_is_left_out_only_where_the_stack_says_so() -> None:
    bare = replace(FABRIC, hcas=(), gid_indexes={})
    assert "NCCL_IB_HCA" not in lab(fabric=bare).env
    kept = changed(LAB, env_fabric={"absent_when_empty": []})
    assert lab(kept, fabric=bare).env["NCCL_IB_HCA"] == ""


def test_the_gid_index_is_that_of_the_fabric_address_or_absent() -> None:
    assert lab().env["NCCL_IB_GID_INDEX"] == "1"
    by_range = changed(LAB, env_fabric={"gid": "absent"})
    assert "NCCL_IB_GID_INDEX" not in lab(by_range).env
    two = replace(FABRIC, hcas=("a", "b"), gid_indexes={"a": 3, "b": 3, "other": 9})
    assert lab(fabric=two).env["NCCL_IB_GID_INDEX"] == "3"


def test_a_device_without_the_address_does_not_choose_the_index() -> None:
    two = replace(FABRIC, hcas=("a", "b"), gid_indexes={"a": 3})
    assert lab(fabric=two).env["NCCL_IB_GID_INDEX"] == "3"


def test_differing_gid_indexes_cannot_be_put_into_one_variable() -> None:
    two = replace(FABRIC, hcas=("a", "b"), gid_indexes={"a": 1, "b": 3})
    with pytest.raises(StackError) as caught:
        lab(fabric=two)
    assert caught.value.lines == [
        "s1: GID indexes of 192.168.100.1 differ (a 1, b 3); "
        "stack lab can name only one index for all devices"
    ]


@pytest.mark.parametrize(
    "word",
    ["{{ rnak }}", "{{ fabric.gateway }}", "{{ ''.__class__.__mro__ }}", "{{ model_dir() }}"],
)
def test_a_placeholder_that_means_nothing_is_an_error_in_one_line(word: str) -> None:
    with pytest.raises(StackError) as caught:
        lab(changed(LAB, command=[word]))
    (line,) = caught.value.lines
    assert line.startswith(f"files/stacks/lab.yaml: {word!r}: ")


LOCKED = definition.load("glm53-sglang-nvfp4")


def _relocked(**model: Any) -> Stack:
    assert LOCKED.lock is not None
    changed_model = LOCKED.lock.model.model_copy(update=model)
    return LOCKED.model_copy(
        update={"lock": LOCKED.lock.model_copy(update={"model": changed_model})}
    )


@pytest.mark.parametrize(
    "other",
    [
        lab(rank=1),
        lab(fabric=replace(FABRIC, interface="enp1s0f0np0")),
        lab(changed(LAB, command=["--rank=0"])),
        lab(changed(LAB, env={"PYTHONUNBUFFERED": "0"})),
        lab(changed(LAB, container={"shm_size": "128m"})),
        lab(changed(LAB, ports={"rendezvous": 25001})),
        lab(changed(LAB, image={"repository": "10.0.2.100:5000/other"})),
        rank_spec(LAB, cluster(workers=2), 0, FABRIC),
    ],
    ids=["rank", "interface", "command", "env", "shm", "port", "image", "world"],
)
def test_whatever_matters_changes_the_hash(other: RankSpec) -> None:
    assert other.spec != lab().spec


def test_another_revision_or_file_of_the_model_changes_the_hash() -> None:
    assert LOCKED.lock is not None
    first, *rest = LOCKED.lock.model.files
    fixed = first.model_copy(update={"sha256": "0" * 64})
    specs = [
        lab(stack).spec
        for stack in (LOCKED, _relocked(revision="0" * 40), _relocked(files=(fixed, *rest)))
    ]
    assert len(set(specs)) == 3


def test_what_does_not_run_does_not_change_the_hash() -> None:
    assert lab(changed(LAB, deadlines={"stall_s": 99}, description="other words")).spec == (
        lab().spec
    )


@given(text=st.text(max_size=40).filter(lambda text: "{" not in text))
def test_text_without_placeholders_is_kept_as_it_is(text: str) -> None:
    # Jinja2 makes \r\n and \r into \n; no definition has them.
    assert template.fill(text, {}) == text.replace("\r\n", "\n").replace("\r", "\n")


def test_a_renumbered_gid_changes_the_environment_but_not_the_spec() -> None:
    before, after = (
        lab(fabric=replace(FABRIC, gid_indexes={FABRIC.hcas[0]: index})) for index in (1, 3)
    )
    assert before.env != after.env
    assert before.spec == after.spec


def test_two_rails_are_both_listed_in_one_range_and_never_crossed() -> None:
    data = cluster().model_dump(mode="json")
    for number, node in enumerate((data["head"], *data["workers"]), start=1):
        node["rail2_address"] = f"192.168.101.{number}"
    data["fabric"]["mode"] = "dual-rail"
    both = Cluster.model_validate(data)
    hcas = ("rocep1s0f0", "rocep1s0f1")
    rails = replace(FABRIC, interface="a0", cidr=str(both.fabric_range), hcas=hcas)
    env = rank_spec(definition.load("glm53-sglang-nvfp4"), both, 0, rails).env
    assert env["NCCL_IB_HCA"] == "rocep1s0f0,rocep1s0f1"
    assert env["NCCL_IB_ADDR_RANGE"] == "192.168.100.0/23"
    assert env["NCCL_CROSS_NIC"] == "0"
    assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == "a0"
    assert all(env.values())


def test_the_mount_through_which_the_engine_sees_its_model() -> None:
    assert mount(LAB, "/srv/models") == ("/srv/models", "/models")
    glm = definition.load("glm53-sglang-nvfp4")
    name = "GLM-5.3-Flash-NVFP4"
    assert mount(glm, "/data") == (f"/data/{name}", f"/models/{name}")
    assert mount(definition.load("dsf-lab"), "/srv/models") is None
    # One that needs what only the rank's host knows is not this one.
    odd = ("{{ fabric.interface }}:/x", "/srv/other:/models", "{{ model_dir }}/lab:/m:ro")
    assert mount(changed(LAB, container={"volumes": odd}), "/srv/models") == (
        "/srv/models/lab",
        "/m",
    )
