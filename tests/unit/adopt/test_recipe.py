"""A container made once more from its inspect document is the same but for ids and times."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adopt.inspected import IMAGE_ID, REQUESTS, inspect
from tests.unit.on_host import module

recipe = module("engines.recipe")
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def without_ids(one: dict[str, Any]) -> dict[str, Any]:
    """An inspect document without what differs between any two containers."""
    bare = copy.deepcopy(one)
    short = bare.pop("Id")[:12]
    if bare["Config"]["Hostname"] == short:
        del bare["Config"]["Hostname"]
    for ends in bare["NetworkSettings"]["Networks"].values():
        ends["NetworkID"] = None
        ends["Aliases"] = [word for word in ends["Aliases"] or () if word != short]
    return bare


def again(one: dict[str, Any]) -> dict[str, Any]:
    """The inspect document of the container that its recipe makes."""
    made = recipe.recipe(one)
    return inspect(made["name"], recipe.body(made, one["Config"]["Image"]), "second")


@pytest.mark.parametrize("name", REQUESTS)
def test_docker_run_with_many_flags_comes_back_as_it_was(name: str) -> None:
    one = inspect(name, REQUESTS[name])
    assert again(one)["Id"] != one["Id"]
    assert without_ids(again(one)) == without_ids(one)
    assert recipe.total([recipe.recipe(again(one))]) == recipe.total([recipe.recipe(one)])


@given(
    entrypoint=st.sampled_from([None, [], [""], ["bash", "-lc"]]),
    command=st.one_of(st.none(), st.lists(WORDS, max_size=3)),
    environment=st.lists(st.tuples(st.sampled_from(["A", "B", "PATH"]), WORDS), max_size=3),
    network=st.sampled_from(["host", "default", "lane"]),
)
def test_any_command_and_environment_comes_back(
    entrypoint: list[str] | None,
    command: list[str] | None,
    environment: list[tuple[str, str]],
    network: str,
) -> None:
    body = copy.deepcopy(REQUESTS["plain"])
    body |= {"Entrypoint": entrypoint, "Cmd": command}
    body["Env"] = [f"{name}={value}" for name, value in environment]
    body["HostConfig"]["NetworkMode"] = network
    if entrypoint in ([], [""]) and not command:
        body["Cmd"] = ["serve"]  # the daemon refuses a container without any command
    one = inspect("rank", body)
    assert without_ids(again(one)) == without_ids(one)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("Config", "Env", ["NODE_RANK=2"]),
        ("Config", "Cmd", ["-lc", "exec vllm serve /cache/other"]),
        ("HostConfig", "Memory", 1),
        ("HostConfig", "Binds", ["/srv:/cache/huggingface"]),
        ("HostConfig", "RestartPolicy", {"Name": "no", "MaximumRetryCount": 0}),
    ],
)
def test_what_differs_has_another_digest(part: str, key: str, value: object) -> None:
    one = inspect("vllm-worker", REQUESTS["vllm-worker"])
    other = copy.deepcopy(one)
    other[part][key] = value
    assert recipe.digest(recipe.recipe(other)) != recipe.digest(recipe.recipe(one))


def test_the_spelling_of_an_image_and_new_empty_keys_make_no_difference() -> None:
    one = inspect("vllm-worker", REQUESTS["vllm-worker"])
    other = copy.deepcopy(one)
    other["Config"]["Image"] = IMAGE_ID
    other["HostConfig"] |= {"Annotations": None, "Later": [], "Odd": 0}
    assert recipe.digest(recipe.recipe(other)) == recipe.digest(recipe.recipe(one))
