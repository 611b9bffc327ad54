"""Whatever stands in an owner's file, or in its place: short printable lines, and soon."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from inventory import document, schema, values
from inventory.schema import InventoryError
from tests.unit.inventory.test_inventory import PAIR, lines_of

ESC = "\\x1b[31m\\x1b]0;mine\\x07"  # as YAML writes it in double quotes


def judged(path: Path) -> list[str]:
    """The lines of one file, which come within a second and which a terminal may be given."""
    began = time.monotonic()
    with pytest.raises(InventoryError) as caught:
        schema.load(path)
    assert time.monotonic() - began < 1
    assert all(line.isprintable() and len(line) <= 1000 for line in caught.value.lines)
    return caught.value.lines


def one_line(folder: Path, right: str, wrong: str) -> str:
    """The one line that comes of a mistake put in the place of what is right."""
    assert PAIR.count(right) == 1
    path = folder / "pair.yaml"
    path.write_text(PAIR.replace(right, wrong), encoding="utf-8")
    (line,) = judged(path)
    return line


@pytest.mark.parametrize(
    "value",
    ["2026-13-45", "0x_", "!!int abc", "2026-02-30", "0b_", "!!float x", "!!timestamp x",
     "!!bool maybe", "!!binary '*'", "!!python/name:os.system ''", "!vault abc", "=",
     "1" * 5000, "0x" + "f" * 70_000, "!!int ''", "2026-12-07T99:00:00Z"],
    ids=lambda value: value[:24],
)  # fmt: skip
@pytest.mark.parametrize("key", ["mtu: 9000", "name: sparks", "stack: lab\n", "mode: bond"])
def test_a_value_that_its_type_cannot_hold_is_named_where_it_stands(
    tmp_path: Path, key: str, value: str
) -> None:
    name = key.partition(":")[0]
    line = one_line(tmp_path, key, f"{name}: {value}" + "\n" * key.count("\n"))
    assert line.split(": ")[1].rpartition(".")[2] == name


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("prefix: 24", "prefix: '24'"),
        ("prefix: 24", "prefix: 24.0"),
        ("prefix: 24", "prefix: 2.4e1"),
        ("mtu: 9000", "mtu: '9000'"),
        ("mtu: 9000", "mtu: true"),
        ("mtu: 9000", "mtu: .inf"),
        ("mtu: 9000", "mtu: .nan"),
        ("user: milo", "user: milo\n  port: true"),
        ("user: milo", "user: milo\n  port: '22'"),
        ("user: milo", "user: milo\n  port: 22.0"),
        ("user: milo", "user: !!binary bWlsbw=="),
        ("    - enp1s0f0np0\n    - enp1s0f1np1", "    !!set {enp1s0f0np0, enp1s0f1np1}"),
    ],
)
def test_what_only_looks_like_the_right_type_is_refused(
    tmp_path: Path, right: str, wrong: str
) -> None:
    one_line(tmp_path, right, wrong)


def test_nobody_need_write_to_a_pipe_for_it_to_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    os.mkfifo(path)
    assert judged(path)[0].endswith("pair.yaml: cannot be read (not a regular file)")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/proc/self", "/no/such\x1b[31m"])
def test_a_device_or_a_folder_is_no_file(path: str) -> None:
    assert len(judged(Path(path))) == 1


@pytest.mark.parametrize("size", [(1 << 20) + 1, 3 << 30])
def test_a_file_larger_than_a_person_writes_is_not_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "pair.yaml"
    with path.open("wb") as file:
        file.truncate(size)
    assert judged(path)[0].endswith("cannot be read (more than 1 MiB)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR, encoding="utf-8")
    path.chmod(0)
    assert "Permission denied" in judged(path)[0]


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join(['*' + below] * 10)}]\n"
    for below, here in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{here}: &{here} {{<<: [{', '.join(['*' + below] * 10)}]}}\n"
    for below, here in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "a: " + "{a: " * 50_000,
        "".join(" " * n + "a:\n" for n in range(1000)),
        "- " * 50_000,
        "? " * 50_000,
        LAUGHS,
        LAUGHS + "name: *i\n",
        MERGES,
        "&a [*a, *a, *a]",
        "&a {? *a : *a}",
        "a: &a {<<: *a}",
        "a: [" + "x, " * 200_000 + "]",
        "\n".join(f"key{n}: 1" for n in range(15_000)),
        "a: !!set {x}",
        "a: !!omap [x: 1]",
        "a: !!pairs [x]",
        "<<: 1",
        "%TAG ! tag:x,2000:\n--- !foo",
        "a: b\n---\nc: d",
        "\x00",
        "\ufeff",
        "*" + "x" * 70_000,
        "a: !" + "x" * 70_000 + " b",
        "\t- x",
    ],
    ids=range(24),
)
def test_a_text_that_is_made_to_hurt_is_refused_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(text, encoding="utf-8")
    assert judged(path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("address: 192.0.2.11", "address: fe80::1%eth0"),
        ("address: 192.0.2.11", "address: '::ffff:192.0.2.11'"),
        ("address: 192.0.2.11", f'address: "fe80::1%{ESC}"'),
        ("address: 192.0.2.11", "address: 255.255.255.255"),
        ("address: 192.0.2.11", "address: 240.0.0.1"),
        ("address: 192.0.2.11", "address: 0.0.0.0"),
        ("address: 192.0.2.11", "address: 224.0.0.1"),
        ("address: 192.0.2.11", "address: '::'"),
        ("address: 192.0.2.11", "address: ff02::1"),
        ("address: 192.0.2.11", "address: 127.1"),
        ("address: 192.0.2.11", "address: 0x7f.1"),
        ("address: 192.0.2.11", "address: 0x7f000001"),
        ("address: 192.0.2.11", f"address: {'a' * 70_000}"),
        ("address: 192.0.2.11", "address: spark1.LOCAL."),
        ("fabric_address: 10.0.0.2", "fabric_address: '::ffff:10.0.0.2'"),
        ("fabric_address: 10.0.0.2", "fabric_address: 10.0.0.02"),
        ("fabric_address: 10.0.0.2", "fabric_address: 10.2"),
        ("user: milo", "user: milo\n  key: ~nouser/.ssh/id"),
        ("user: milo", "user: milo\n  config_file: ~no-such-user"),
        ("user: milo", f"user: milo\n  key: /{'k' * 70_000}"),
        ("user: milo", f'user: "{ESC}"'),
        ("user: milo", f"user: {'u' * 70_000}"),
        ("user: milo", f"user: milo\n  {'u' * 70_000}: 1"),
        ("user: milo", f'user: milo\n  "{ESC}": 1'),
        ("user: milo", 'user: "\\u202Eevil"'),
        ("stack: lab\n", f'stack: "{ESC}"\n'),
        ("- enp1s0f0np0", f'- "{ESC}"'),
    ],
    ids=lambda value: value[:40],
)
def test_a_value_that_names_nothing_is_one_short_line(
    tmp_path: Path, right: str, wrong: str
) -> None:
    assert len(one_line(tmp_path, right, wrong)) < 400


@pytest.mark.parametrize("address", ["240.0.0.1", "255.255.255.255", "0.1.2.3", "224.0.0.5"])
def test_an_address_that_no_host_can_have_is_not_the_fabrics(tmp_path: Path, address: str) -> None:
    said = lines_of(
        tmp_path, PAIR.replace("fabric_address: 10.0.0.2", f"fabric_address: {address}")
    )
    assert said[0].endswith(f"{address!r} found; an address the other hosts can reach expected")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("spark.example.net", "Spark.Example.NET"),
        ("2001:db8::1", "2001:DB8:0:0::1"),
        ("2001:db8::1", "2001:0db8:0000::0001"),
        ("SPARK1", "spark1"),
    ],
)
def test_one_host_in_two_spellings_is_named(tmp_path: Path, one: str, other: str) -> None:
    text = PAIR.replace("192.0.2.11", f"'{one}'").replace("192.0.2.12", f"'{other}'")
    (line,) = lines_of(tmp_path, text)
    assert line.endswith("found; head.address has it too, a different one expected")


@pytest.mark.parametrize(
    "spellings",
    [("127.0.0.1", "127.1", "0x7f.1", "2130706433", "::ffff:127.0.0.1"),
     ("spark1", "SPARK1", "spark1."), ("fe80::1", "FE80:0::1", "fe80::1%eth0")],
)  # fmt: skip
def test_all_spellings_of_a_host_are_one(spellings: tuple[str, ...]) -> None:
    assert len({values.host_of(one) for one in spellings}) == 1


@pytest.mark.parametrize(
    "folder",
    ["/etc", "/etc/", "/", "//", "/usr/local/models", "/boot", "/dev/sda", "/proc/self", "/sys",
     "/run/models", "/lib/models", "/var", "/var/lib/docker/models", "/bin", "/home", "/root"],
)  # fmt: skip
def test_a_folder_of_the_system_is_no_model_dir(tmp_path: Path, folder: str) -> None:
    one_line(tmp_path, "model_dir: /srv/models", f"model_dir: {folder}")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("/srv/models/", "/srv/models"), ("/home/milo/models//", "/home/milo/models"),
     ("/etcetera", "/etcetera"), ("/var/lib/models", "/var/lib/models"), ("/mnt/", "/mnt")],
)  # fmt: skip
def test_a_slash_at_the_end_of_model_dir_says_nothing(
    tmp_path: Path, written: str, meant: str
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR.replace("/srv/models", written), encoding="utf-8")
    assert schema.load(path).model_dir == meant


def test_a_key_that_is_a_word_of_yaml_is_a_word(tmp_path: Path) -> None:
    line = one_line(tmp_path, "user: milo", "user: milo\n  on: 1")
    assert "ssh.on: unknown key" in line


def test_hundreds_of_mistakes_end_in_how_many_more(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text("\n".join(f"key{n}: 1" for n in range(150)), encoding="utf-8")
    assert judged(path)[-1].startswith("and ")


def test_a_lock_of_three_thousand_files_is_read_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "big.lock.yaml"
    entry = "    - {name: model-%05d.safetensors, size: 4999999999, sha256: " + "0" * 64 + "}\n"
    head = "stack: big\nmodel:\n  files:\n"
    path.write_text(head + "".join(entry % n for n in range(3000)), encoding="utf-8")
    began = time.monotonic()
    read = document.read(path)
    assert read.broken is None
    assert len(read.data["model"]["files"]) == 3000
    assert time.monotonic() - began < 1
