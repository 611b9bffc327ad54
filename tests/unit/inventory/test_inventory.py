"""The owner's file: what is right loads, and each mistake is one line with place and remedy."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from inventory import schema, values
from inventory.schema import Cluster, InventoryError

ROOT = Path(__file__).resolve().parents[3]

PAIR = """\
name: sparks
ssh:
  user: milo
head:
  name: spark1
  address: 192.0.2.11
  fabric_address: 10.0.0.1
workers:
  - name: spark2
    address: 192.0.2.12
    fabric_address: 10.0.0.2
fabric:
  mode: bond
  interfaces:
    - enp1s0f0np0
    - enp1s0f1np1
  mtu: 9000
  prefix: 24
stack: lab
rollback_stack: dsf-lab
model_dir: /srv/models
"""


def lines_of(folder: Path, text: str, overrides: dict[str, str] | None = None) -> list[str]:
    """The mistakes of `text` as a file, without the folder's name; [] when it loads."""
    path = folder / "pair.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        schema.load(path, overrides)
    except InventoryError as error:
        return [line.replace(f"{folder}/", "") for line in error.lines]
    return []


def test_the_pair_loads_with_ranks_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR, encoding="utf-8")
    cluster = schema.load(path)
    assert [(node.name, node.rank) for node in cluster.nodes] == [("spark1", 0), ("spark2", 1)]
    assert (cluster.ssh.port, cluster.fabric.bond_mode) == (22, "active-backup")
    assert cluster.policy.foreign_containers == "refuse"
    assert cluster.tags.hold == "SPARK-HELD"
    assert cluster.device(cluster.head) == "bond0"
    assert str(cluster.fabric_network) == "10.0.0.0/24"


def test_ranks_survive_the_shallow_copies_that_pyinfra_makes_of_host_data(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR, encoding="utf-8")
    assert [node.rank for node in copy.copy(schema.load(path)).nodes] == [0, 1]


RAILS = (
    PAIR.replace("mode: bond", "mode: dual-rail")
    .replace("fabric_address: 10.0.0.1", "fabric_address: 10.0.0.1\n  rail2_address: 10.0.1.1")
    .replace("fabric_address: 10.0.0.2", "fabric_address: 10.0.0.2\n    rail2_address: 10.0.1.2")
)


def test_two_rails_are_two_devices_and_one_range(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(RAILS, encoding="utf-8")
    made = schema.load(path)
    assert made.device(made.head) == "enp1s0f0np0"
    assert made.rails(made.nodes[1]) == [("enp1s0f0np0", "10.0.0.2"), ("enp1s0f1np1", "10.0.1.2")]
    assert str(made.fabric_range) == "10.0.0.0/23"
    assert str(made.fabric_network) == "10.0.0.0/24"


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        (
            "  rail2_address: 10.0.1.1\n",
            "",
            "4: head.rail2_address: nothing found; the address on interfaces[1] expected",
        ),
        (
            "rail2_address: 10.0.1.2",
            "rail2_address: 10.0.2.2",
            "13: workers[0].rail2_address: '10.0.2.2' found; an address in 10.0.1.0/24, the subnet "
            "of head, expected",
        ),
        (
            "rail2_address: 10.0.1.2",
            "rail2_address: fe80::1",
            "13: workers[0].rail2_address: 'fe80::1' found; an IPv4 address such as 10.0.0.1 "
            "expected",
        ),
        (
            "address: 192.0.2.12",
            "address: 10.0.1.77",
            "11: workers[0].address: '10.0.1.77' found; it is inside the fabric 10.0.1.0/24, and "
            "the control connection must not ride on the fabric that this tool changes; give the "
            "management address",
        ),
        (
            "    - enp1s0f1np1\n",
            "",
            "16: fabric.interfaces: 1 found; mode dual-rail needs exactly 2 (rail 1, rail 2)",
        ),
    ],
)
def test_a_mistake_in_two_rails_is_one_line(
    tmp_path: Path, right: str, wrong: str, line: str
) -> None:
    assert RAILS.count(right) == 1
    assert lines_of(tmp_path, RAILS.replace(right, wrong)) == [f"pair.yaml:{line}"]


def test_rails_in_one_subnet_or_without_the_mode_are_named_for_every_host(tmp_path: Path) -> None:
    said = lines_of(tmp_path, RAILS.replace("10.0.1.", "10.0.0.1"))
    assert [line.split(": ", 2)[1] for line in said] == [
        "head.rail2_address",
        "workers[0].rail2_address",
    ]
    assert "it is inside 10.0.0.0/24, the subnet of the first rail, another subnet" in said[0]
    said = lines_of(tmp_path, RAILS.replace("mode: dual-rail", "mode: bond"))
    assert len(said) == 2
    assert said[0].endswith("'10.0.1.1' found; only mode dual-rail has a second address")


@pytest.mark.parametrize("name", ["sparks.yaml", "lab.yaml"])
def test_the_shipped_files_have_no_mistake(name: str) -> None:
    assert len(schema.load(ROOT / "inventory" / name).nodes) >= 2


def test_without_a_bond_the_first_interface_carries_the_address(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    single = PAIR.replace("mode: bond", "mode: single").replace("    - enp1s0f1np1\n", "")
    path.write_text(single, encoding="utf-8")
    made = schema.load(path)
    assert made.device(made.head) == "enp1s0f0np0"


# What is put in place of what, and the one line that comes of it.
MISTAKES = [
    (
        "stack: lab",
        "clocks: {cpu_max_mhz: fast}\nstack: lab",
        "19: clocks.cpu_max_mhz: 'fast' found; whole MHz, 100 to 6000, allowed",
    ),
    (
        "stack: lab",
        "clocks: {gpu_mhz: [2450, 300]}\nstack: lab",
        "19: clocks.gpu_mhz: [2450, 300] found; the lowest clock first, then the highest, expected",
    ),
    (
        "stack: lab",
        "clocks: {gpu_mhz: 2450}\nstack: lab",
        "19: clocks.gpu_mhz: 2450 found; the lowest and the highest clock in whole MHz, "
        "100 to 6000, allowed",
    ),
    (
        "stack: lab",
        "clocks: {gpu_mhz: [300, 24500]}\nstack: lab",
        "19: clocks.gpu_mhz[1]: 24500 found; the lowest and the highest clock in whole MHz, "
        "100 to 6000, allowed",
    ),
    (
        "stack: lab",
        "clocks: {gpu_max: 2450}\nstack: lab",
        "19: clocks.gpu_max: unknown key; did you mean gpu_mhz?",
    ),
    (
        "user: milo",
        "user: Milo Smith",
        "3: ssh.user: 'Milo Smith' found; a Linux user name allowed",
    ),
    (
        "address: 192.0.2.11",
        "address: spark1.local",
        "6: head.address: 'spark1.local' found; names in .local are refused: this tool switches "
        "avahi off, which answers for them; give the IP address or a DNS name",
    ),
    (
        "address: 192.0.2.11",
        "address: 10.0.0.77",
        "6: head.address: '10.0.0.77' found; it is inside the fabric 10.0.0.0/24, and the control "
        "connection must not ride on the fabric that this tool changes; "
        "give the management address",
    ),
    (
        "address: 192.0.2.11",
        "address: 192.0.2.300",
        "6: head.address: '192.0.2.300' found; an IP address, a DNS or ssh_config name, "
        "or local expected",
    ),
    (
        "address: 192.0.2.12",
        "address: 192.0.2.11",
        "10: workers[0].address: '192.0.2.11' found; head.address has it too, "
        "a different one expected",
    ),
    (
        "name: spark2",
        "name: spark1",
        "9: workers[0].name: 'spark1' found; head.name has it too, a different one expected",
    ),
    (
        "name: spark2",
        "name: workers",
        "9: workers[0].name: 'workers' found; all, head, local, workers are names that "
        "pyinfra uses itself, another one expected",
    ),
    (
        "fabric_address: 10.0.0.2",
        "fabric_address: 10.0.1.2",
        "11: workers[0].fabric_address: '10.0.1.2' found; an address in 10.0.0.0/24, "
        "the subnet of head, expected",
    ),
    (
        "fabric_address: 10.0.0.2",
        "fabric_address: 10.0.0.255",
        "11: workers[0].fabric_address: '10.0.0.255' found; a host address of 10.0.0.0/24 expected",
    ),
    (
        "fabric_address: 10.0.0.2",
        "fabric_address: 10.0.0.1",
        "11: workers[0].fabric_address: '10.0.0.1' found; head.fabric_address has it too, "
        "a different one expected",
    ),
    (
        "fabric_address: 10.0.0.2",
        "fabric_address: fe80::1",
        "11: workers[0].fabric_address: 'fe80::1' found; an IPv4 address such as 10.0.0.1 expected",
    ),
    (
        "fabric_address: 10.0.0.2",
        "fabric_address: 127.0.0.2",
        "11: workers[0].fabric_address: '127.0.0.2' found; "
        "an address the other hosts can reach expected",
    ),
    (
        "mode: bond",
        "mode: bonded",
        "13: fabric.mode: 'bonded' found; bond, dual-rail or single allowed",
    ),
    (
        "    - enp1s0f1np1\n",
        "",
        "14: fabric.interfaces: 1 found; mode bond needs 2 or more (or mode: single)",
    ),
    (
        "mode: bond",
        "transmit_hash_policy: layer2+3",
        "13: fabric.transmit_hash_policy: 'layer2+3' found; only bond_mode 802.3ad, balance-xor, "
        "balance-tlb have one, here it is active-backup",
    ),
    ("mode: bond", "mode: single", "14: fabric.interfaces: 2 found; mode single needs exactly 1"),
    (
        "- enp1s0f1np1",
        "- enp1s0f0np0",
        "16: fabric.interfaces[1]: 'enp1s0f0np0' found; fabric.interfaces[0] has it too, "
        "a different one expected",
    ),
    (
        "- enp1s0f1np1",
        "- bond0",
        "16: fabric.interfaces[1]: 'bond0' found; the physical interfaces of the fabric expected",
    ),
    (
        "- enp1s0f1np1",
        "- a-name-of-16-chr",
        "16: fabric.interfaces[1]: 'a-name-of-16-chr' found; Linux interface names "
        "(at most 15 characters, no slash, no space) allowed",
    ),
    ("mtu: 9000", "mtu: 90000", "17: fabric.mtu: 90000 found; 1280 to 9216 (bytes) allowed"),
    ("mtu: 9000", "mtu: 1279", "17: fabric.mtu: 1279 found; 1280 to 9216 (bytes) allowed"),
    ("mtu: 9000", "mtu: 9217", "17: fabric.mtu: 9217 found; 1280 to 9216 (bytes) allowed"),
    ("mtu: 9000", "mtu: jumbo", "17: fabric.mtu: 'jumbo' found; 1280 to 9216 (bytes) allowed"),
    ("mtu: 9000", "mtu:", "17: fabric.mtu: nothing found; 1280 to 9216 (bytes) allowed"),
    ("prefix: 24", "prefix: 64", "18: fabric.prefix: 64 found; a prefix length, 8 to 30, allowed"),
    (
        "stack: lab\nrollback",
        "stack: labb\nrollback",
        "19: stack: 'labb' found; dsf-0731, dsf-lab, glm53-sglang-nvfp4, lab allowed",
    ),
    (
        "rollback_stack: dsf-lab",
        "rollback_stack: lab",
        "20: rollback_stack: 'lab' found; stack has it too, a different one expected",
    ),
    (
        "model_dir: /srv/models",
        "model_dir: srv/models",
        "21: model_dir: 'srv/models' found; an absolute path on the hosts "
        "(letters, digits, . _ @ % + = - only) allowed",
    ),
    (
        "model_dir: /srv/models",
        "model_dir: /srv/../etc",
        "21: model_dir: '/srv/../etc' found; a path without . and .. parts expected",
    ),
    (
        "model_dir: /srv/models\n",
        "",
        "1: model_dir: missing; an absolute path on the hosts "
        "(letters, digits, . _ @ % + = - only) expected",
    ),
    # A misspelt key is one mistake, although the right key is then missing.
    ("model_dir: /srv", "modeldir: /srv", "21: modeldir: unknown key; did you mean model_dir?"),
    (
        "  user: milo",
        "  user: milo\n  zzz: 1",
        "4: ssh.zzz: unknown key; allowed here: config_file, key, port, user",
    ),
    (
        "  user: milo",
        "  user: milo\n  user: otto",
        "4: ssh.user: key is there twice, first on line 3; one value expected",
    ),
    (
        "  user: milo",
        "  user: milo\n  port: 65536",
        "4: ssh.port: 65536 found; a TCP port, 1 to 65535, allowed",
    ),
    (
        "  user: milo",
        "  user: milo\n  key: /no/such/key",
        "4: ssh.key: '/no/such/key' found; no such file on this machine",
    ),
    (
        "ssh:\n  user: milo",
        "ssh: milo",
        "2: ssh: 'milo' found; a mapping with user (and port, key, config_file) allowed",
    ),
    (
        "rollback_stack: dsf-lab",
        "tags: {hold: 'a b'}",
        "20: tags.hold: 'a b' found; a word of A-Z, 0-9 and - (at most 32 characters) allowed",
    ),
    (
        "rollback_stack: dsf-lab",
        "policy: {foreign_containers: remove}",
        "20: policy.foreign_containers: 'remove' found; refuse or stop allowed",
    ),
    (
        "model_dir: /srv/models",
        "model_dir: [/srv/models",
        "22: YAML syntax: while parsing a flow sequence, did not find expected ',' or ']'",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "line"), MISTAKES, ids=[case[1] for case in MISTAKES])
def test_one_mistake_is_one_line(tmp_path: Path, right: str, wrong: str, line: str) -> None:
    assert PAIR.count(right) == 1
    assert lines_of(tmp_path, PAIR.replace(right, wrong)) == [f"pair.yaml:{line}"]


def test_five_mistakes_of_five_kinds_come_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = PAIR
    for right, wrong in (
        ("user: milo", "user: Milo Smith"),
        ("name: spark2", "name: spark1"),
        ("fabric_address: 10.0.0.2", "fabric_address: 10.9.0.2"),
        ("mtu: 9000", "mtu: 90000"),
        ("model_dir", "modeldir"),
    ):
        text = text.replace(right, wrong)
    found = lines_of(tmp_path, text)
    keys = [line.split(": ")[1] for line in found]
    assert keys == [
        "ssh.user",
        "workers[0].name",
        "workers[0].fabric_address",
        "fabric.mtu",
        "modeldir",
    ]


@pytest.mark.parametrize("mtu", [1280, 9216])
def test_the_ends_of_a_range_are_allowed(tmp_path: Path, mtu: int) -> None:
    assert lines_of(tmp_path, PAIR.replace("mtu: 9000", f"mtu: {mtu}")) == []


def test_an_alias_that_holds_itself_is_a_mistake_like_any_other(tmp_path: Path) -> None:
    text = PAIR.replace(
        "stack: lab\nroll", "policy: &all {foreign_containers: *all}\nstack: lab\nroll"
    )
    (line,) = lines_of(tmp_path, text)
    assert line.startswith("pair.yaml:19: policy.foreign_containers: a mapping found; ")


def test_letters_beyond_ascii_are_shown_as_written(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, PAIR.replace("user: milo", "user: jörg"))
    assert line == "pair.yaml:3: ssh.user: 'jörg' found; a Linux user name allowed"


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(InventoryError) as caught:
        schema.load(path)
    assert caught.value.lines == [f"{path}: cannot be read (not UTF-8 text)"]


def test_both_hosts_cannot_be_this_machine(tmp_path: Path) -> None:
    one_local = PAIR.replace("192.0.2.11", "local")
    assert lines_of(tmp_path, one_local) == []
    both = lines_of(tmp_path, one_local.replace("192.0.2.12", "local"))
    assert both == [
        "pair.yaml:10: workers[0].address: 'local' found; head.address has it too, "
        "a different one expected"
    ]


def test_one_to_seven_workers(tmp_path: Path) -> None:
    def with_workers(count: int) -> str:
        data = yaml.safe_load(PAIR)
        data["workers"] = [
            {"name": f"w{i}", "address": f"192.0.2.{100 + i}", "fabric_address": f"10.0.0.{10 + i}"}
            for i in range(count)
        ]
        return yaml.safe_dump(data)

    assert lines_of(tmp_path, with_workers(7)) == []
    for count in (0, 8):
        (line,) = lines_of(tmp_path, with_workers(count))
        assert line.endswith(
            f"a list of {count} found; a list of 1 to 7 hosts in rank order allowed"
        )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "pair.yaml: no such file; a YAML file expected"),
        ("", "pair.yaml: empty; keys and values expected"),
        ("- a\n", "pair.yaml:1: a list of 1 found; a mapping of keys and values allowed"),
        ("a: [&x, *y]", "pair.yaml:1: YAML syntax: found undefined alias"),
        ("? [a]\n: b\n", "pair.yaml:1: YAML syntax: "),
    ],
)
def test_a_file_without_data_is_one_line(tmp_path: Path, text: str | None, line: str) -> None:
    path = tmp_path / "pair.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InventoryError) as caught:
        schema.load(path)
    (found,) = caught.value.lines
    assert found.replace(f"{tmp_path}/", "").startswith(line)


def test_overrides_stand_in_for_the_file_and_are_named_in_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR, encoding="utf-8")
    cluster = schema.load(path, {"fabric.mtu": "1500", "rollback_stack": "null"})
    assert (cluster.fabric.mtu, cluster.rollback_stack) == (1500, None)
    assert lines_of(tmp_path, PAIR, {"stack": "nope"}) == [
        "override stack=nope: stack: 'nope' found; dsf-0731, dsf-lab, glm53-sglang-nvfp4, lab "
        "allowed"
    ]


def test_a_cluster_made_in_code_is_held_to_the_same_rules() -> None:
    data = yaml.safe_load(PAIR)
    data["workers"][0]["fabric_address"] = "10.0.0.1"
    with pytest.raises(ValidationError, match=r"head\.fabric_address has it too"):
        Cluster.model_validate(data)


SHELL_TYPES: dict[str, Any] = {
    "interface": values.Interface,
    "user": values.User,
    "label": values.Label,
    "docker name": values.DockerName,
    "hold tag": values.HoldTag,
    "absolute path": values.AbsolutePath,
    "relative path": values.RelativePath,
    "management address": values.ManagementAddress,
    "fabric address": values.FabricAddress,
    "repository": values.Repository,
    "digest": values.Digest,
    "size": values.DockerSize,
    "variable": values.EnvName,
}
# Text that is close to what the types take, with the characters a shell minds thrown in.
NEARLY = st.text(alphabet="ab09/.-_:@%+= \t\n'\"$`;&|<>(){}*?~#\\!\0é", max_size=24)


@pytest.mark.parametrize("kind", SHELL_TYPES)
@given(text=st.one_of(NEARLY, st.text(max_size=24), st.ip_addresses(v=4).map(str)))
def test_what_a_type_accepts_needs_no_quoting_and_is_no_option(kind: str, text: str) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(SHELL_TYPES[kind])
    try:
        accepted = adapter.validate_python(text)
    except ValidationError:
        return
    assert accepted == text
    assert shlex.quote(accepted) == accepted
    assert not accepted.startswith("-")


@pytest.mark.parametrize("bad", ["bond0\n", "a b", "a;b", "$(a)", "-a", "..", "a/b", ""])
def test_interfaces_refuse_what_is_no_interface(bad: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(values.Interface).validate_python(bad)


def _leaves(data: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in _leaves(value, (*where, key))]
    if isinstance(data, list):
        return [leaf for i, value in enumerate(data) for leaf in _leaves(value, (*where, i))]
    return [where]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


def _with_odd_values(draw: Callable[[Any], Any]) -> Any:
    data = yaml.safe_load(PAIR)
    for leaf in draw(st.lists(st.sampled_from(_leaves(data)), min_size=1, max_size=4)):
        # Sometimes the whole branch, not only its end.
        *above, last = leaf[: draw(st.integers(1, len(leaf)))]
        target = data
        for key in above:
            target = target[key] if isinstance(target, dict | list) else {}
        if isinstance(target, dict | list) and (isinstance(target, dict) or last < len(target)):
            target[last] = draw(ODD)
    return data


@given(data=st.data())
def test_whatever_stands_in_the_file_the_answer_is_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    try:
        text = yaml.safe_dump(_with_odd_values(data.draw))
    except (KeyError, IndexError, TypeError):
        return  # a leaf below a branch that an earlier choice replaced
    for line in lines_of(tmp_path_factory.getbasetemp(), text):
        assert re.match(r"pair\.yaml:\d+: ", line)
        assert "\n" not in line


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_text_that_is_no_inventory_is_refused_in_lines(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    assert lines_of(tmp_path_factory.getbasetemp(), text)
