"""Watchdog lines: which they are, held behind a tag, given back byte for byte."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts.watchdogs.crontab import Crontabs, Line, Table, line, table
from operations.watchdogs.crontab import hold, put_back, rearm, tag_of, watchdogs
from tests.unit.on_host import module

journal, files, spark_host_crontab = (
    module("run.journal"),
    module("undo.files"),
    module("watchdogs.crontab"),
)
on_host = module("watchdogs.lines")

DAY = date(2026, 8, 26)
READY = "/usr/local/bin/spark1-inference-ready.sh"
WORD = "SPARK-HELD"

# Any bytes a crontab file can hold, as facts.crontab decodes them; weighted towards what hurts.
odd = st.sampled_from(["\r", "\t", " ", "%", "\\%", "&", "\\", "#", "*", "\n", "\xff", "\xc3\xa9"])
words = st.sampled_from([READY, "docker", "*/5 * * * *", "@reboot", "MAILTO=", "#SPARK-HELD-"])
texts = st.lists(st.one_of(odd, words, st.text(st.characters(max_codepoint=255)))).map("".join)


PATH = "/var/spool/cron/crontabs/root"


def verdicts(text: str, path: str = PATH) -> dict[int, Line]:
    """As the host judges a table, on which READY is a script that starts an engine."""
    reader = module("watchdogs.mentions").Reader(())
    for home in ("/root", "/nonexistent"):
        reader.weights[READY, home] = "starts"
    owner = "/root" if path == PATH else None
    found = spark_host_crontab.verdicts(reader, path, text.encode("latin-1"), owner)
    return {int(number): line(one) for number, one in found.items()}


def of_root(text: str) -> Table:
    return Table("root", PATH, text, 0o600, 0, 0, lines=verdicts(text))


def armed(text: str) -> list[int]:
    """Numbers of the lines that would be held."""
    return [n for n, one in verdicts(text).items() if not one.tag]


def chosen(line: str) -> bool:
    return bool(armed(line))


def held(text: str, day: date = DAY) -> str:
    return hold(text, WORD, day, armed(text))


# Whole crontabs as people and tools write them, line by line; any of them may be the last one.
schedules = st.sampled_from(
    ["*/5 * * * *", "@reboot", "0\t4 *  * mon,wed", "@daily\t", "* * * * *"]
)
commands = st.sampled_from(
    [
        READY,
        f"{READY} >> /var/log/g.log 2>&1",
        f"{READY} $(date +\\%F)",
        f"{READY} a%b%%c",
        "cd /opt/dsf && docker compose up -d",
        "/usr/bin/true",
    ]
)
jobs = st.tuples(schedules, commands).map(" ".join)
days = st.dates(date(2020, 1, 1), date(2029, 12, 31)) | st.sampled_from(
    [DAY, DAY - timedelta(days=1)]
)
# Our own tag of any day is among them: who copies a crontab from another host gets those.
tags = st.tuples(st.sampled_from([WORD, "TESTING", "OTHER", f"{WORD}-OLD"]), days).map(
    lambda one: f"#{one[0]}-{one[1]:%Y%m%d} "
)
lines = st.one_of(
    jobs,
    jobs.map(lambda job: "  " + job),
    st.tuples(tags, jobs).map("".join),
    st.tuples(tags, tags, jobs).map("".join),
    st.sampled_from(
        ["", " ", "# m h dom mon dow command", "#Ansible: guard", f"# {READY}", "MAILTO=a@b.de"]
    ),
    st.sampled_from(["PATH=/usr/bin:/opt/docker/bin", "A = '* * * * * docker'", "#\xff\xfc"]),
)
tables = st.tuples(st.lists(lines, min_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda one: one[1].join(one[0]) + (one[1] if one[2] else "")
)


def kept(text: str) -> frozenset[str]:
    """As spark-host tells them from its journal: lines that bore the tag before the first hold."""
    return frozenset(line for line in text.split("\n") if re.match(rf"#{WORD}-\d{{8}} ", line))


@given(st.one_of(texts, tables), st.lists(days, min_size=1, max_size=4))
def test_any_held_crontab_comes_back_byte_for_byte(text: str, on: list[date]) -> None:
    """Also after several holds on different days, with none given back in between."""
    now = text
    for day in on:
        now = held(now, day)
    assert rearm(now, WORD, kept(text)) == text
    text.encode("latin-1")  # every text here is one that a file can hold


@given(st.one_of(texts, tables))
def test_every_line_can_be_held_and_comes_back(text: str) -> None:
    everything = hold(text, WORD, DAY, range(1, text.count("\n") + 2))
    assert len(kept(everything)) == len(set(text.split("\n")))
    assert rearm(everything, WORD, kept(text)) == text


@given(text=st.one_of(texts, tables), day=days)
def test_what_is_held_on_the_host_comes_back_from_there(text: str, day: date) -> None:
    """Held, written through the journal, read again, re-armed: what the jobs do. Then undo."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "ROOT", f"{folder}/journal")
        patch.setattr(
            journal.os, "fsync", lambda _: None
        )  # a hundred tables; none meets a power cut
        path, data = Path(folder) / "root", text.encode("latin-1")
        path.write_bytes(data)

        def written(edit: Callable[[Table], str]) -> bytes:
            reader = module("watchdogs.mentions").Reader(())
            now = table("root", spark_host_crontab.table(str(path), reader, "/root"))
            owner = (os.geteuid(), os.getegid())
            journal.put(str(path), 0o600, owner, edit(now).encode("latin-1"), WORD)
            return path.read_bytes()

        for _ in range(2):
            written(lambda now: held(now.text, day))
            assert written(lambda now: rearm(now.text, WORD, now.kept)) == data
        for _ in range(2):
            written(lambda now: held(now.text, day))
            spark_host_crontab.rearm()
            assert path.read_bytes() == data
        written(lambda now: held(now.text, day))
        later = b"\n# by the owner, later\n"
        path.write_bytes(path.read_bytes() + later)
        (entry,) = journal.entries()
        files.give(entry)
        assert path.read_bytes() == data + later


@given(texts)
def test_holding_twice_is_holding_once_whatever_the_day(text: str) -> None:
    once = held(text)
    assert held(once, date(2027, 1, 2)) == once


@given(texts)
def test_nothing_armed_is_left_and_only_whole_tags_are_added(text: str) -> None:
    before, after = text.split("\n"), held(text).split("\n")
    assert not any(chosen(line) for line in after)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert new in (old, tag_of(WORD, DAY) + old)


def test_a01_a_hand_written_line_is_adopted_once_and_never_doubled() -> None:
    text = f"# the guard\n*/5 * * * * {READY}\n"
    first = held(text)
    assert first == f"# the guard\n#SPARK-HELD-20260826 */5 * * * * {READY}\n"
    changed = first.replace(READY, f"{READY} --verbose")
    assert held(changed) == changed
    assert held(first).count(READY) == 1


def test_a03_five_cycles_leave_a_redirect_as_it_was() -> None:
    text = f"0 * * * * {READY} >> /var/log/g.log 2>&1\n"
    now = text
    for _ in range(5):
        now = held(now)
        assert now != text
        now = rearm(now, WORD)
        assert now == text


@pytest.mark.parametrize(
    "line",
    [
        f"@reboot   {READY}",
        f"*/5\t*\t*\t*\t*\t{READY}",
        f"  @hourly {READY}",
        f"\t0 4 * * mon,wed root {READY}",
        f"@daily\t{READY}",
    ],
)
def test_a05_nicknames_and_tabs_are_armed_lines(line: str) -> None:
    assert chosen(line)
    assert held(f"{line}\n") == f"#SPARK-HELD-20260826 {line}\n"


def test_a07_percent_signs_keep_their_backslashes() -> None:
    text = f"*/5 * * * * {READY} $(date +\\%F)\n*/5 * * * * {READY} a%b%%c\n"
    assert rearm(held(text), WORD) == text
    assert "$(date +\\%F)" in held(text)


def test_a10_a_foreign_marker_stays_adjacent_and_a_copy_put_back_is_seen() -> None:
    text = f"#Ansible: guard\n*/5 * * * * {READY}\n"
    ours = held(text)
    assert ours.split("\n")[:2] == ["#Ansible: guard", f"#SPARK-HELD-20260826 */5 * * * * {READY}"]
    resurrected = f"{ours}*/5 * * * * {READY}\n"
    found = of_root(resurrected)
    again = watchdogs(Crontabs((found,)))
    assert [list(lines) for _, lines in again] == [[3]]
    assert put_back(found, WORD) == {3: 2}
    # Both are given back as somebody left them: what another tool wrote is not ours to delete.
    assert rearm(held(resurrected), WORD) == text + f"*/5 * * * * {READY}\n"


@pytest.mark.parametrize(
    ("text", "path", "command"),
    [
        (f"*/5 * * * * {READY} $(date +\\%F)", None, f"{READY} $(date +%F)"),
        (f"@reboot   {READY}  a%b", None, f"{READY}  a"),
        (f" 1\t2 3 4\t5\t{READY}", None, READY),
        (f"* * * * * root {READY} root", "/etc/cron.d/x", f"{READY} root"),
        (f"@daily root {READY}", "/etc/crontab", READY),
        ("7 5 cron.daily run-parts /x", "/etc/anacrontab", "run-parts /x"),
        ("@monthly 5 cron.x docker up", "/etc/anacrontab", "docker up"),
        ("* * * docker", None, ""),
    ],
)
def test_the_command_of_a_line_is_what_cron_runs(text: str, path: str | None, command: str) -> None:
    assert on_host.command(path or PATH, path is not None, text) == command


def test_a12_only_the_line_itself_changes() -> None:
    text = (
        f"#TESTING-20260826 */5 * * * * {READY}\n"
        f"*/7 * * * * {READY}.old --dry\n"
        f"0 1 * * * {READY.replace('.sh', 'Xsh')}\n"
        f"*/5 * * * * {READY}\n"
    )
    lines = held(text).split("\n")
    assert lines[:3] == text.split("\n")[:3]
    assert lines[3] == f"#SPARK-HELD-20260826 */5 * * * * {READY}"
    assert rearm(held(text), WORD) == text


def test_tags_of_other_words_and_broken_tags_are_not_ours() -> None:
    text = (
        f"#OTHER-20260826 */5 * * * * {READY}\n#SPARK-HELD-2026 * * * * * {READY}\n"
        f" #SPARK-HELD-20260826 * * * * * {READY}\n#SPARK-HELD-20260826x {READY}\n"
    )
    assert rearm(text, WORD) == text
    assert rearm(f"#SPARK-HELD-20260826 #SPARK-HELD-20260826 {READY}", WORD).count("#") == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        " \t",
        "\r",
        "# */5 * * * * docker start x",
        "   # docker",
        f"#AllowX */5 * * * * {READY}",
        "MAILTO=docker@example.org",
        "PATH = /usr/bin:/opt/docker/bin",
        '"DOCKER_HOST" = unix:///run/docker.sock',
        "DOCKER_OPTS='* * * * * docker'",
    ],
)
def test_comments_blank_lines_and_assignments_are_no_jobs(line: str) -> None:
    assert not on_host.is_job(line)
    assert not chosen(line)


@pytest.mark.parametrize(
    "line",
    [
        "* * * * * A=1 docker compose up -d",
        "0 3 * * * cd /opt/dsf && docker compose up",
        "@reboot podman start engine",
        f"*/5 * * * * flock -n /run/x {READY}; true",
        f'5 0 * * * sh -c "{READY}"',
        "-*/5 * * * * /usr/bin/docker start a",
    ],
)
def test_jobs_that_start_containers_are_watchdogs(line: str) -> None:
    assert on_host.is_job(line)
    assert chosen(line)


@pytest.mark.parametrize(
    "line",
    [
        "17 4 * * 0 /usr/bin/find /var/tmp -name 'bench-*.json' -delete",
        "0 1 * * * /usr/local/bin/dockerize-notes",
        f"0 1 * * * cat /var/log{READY}.log",
        f"0 1 * * * {READY}d",
    ],
)
def test_other_jobs_are_left_alone(line: str) -> None:
    assert on_host.is_job(line)
    assert not chosen(line)


def test_a_script_is_named_once_in_a_line() -> None:
    found = verdicts(f"* * * * * {READY} || {READY} --again\n0 0 * * * /bin/true")
    assert {number: one.scripts for number, one in found.items()} == {1: (READY,)}


def test_tables_without_a_watchdog_are_left_out() -> None:
    tables = (of_root("0 1 * * * /bin/true\n"), of_root(f"* * * * * {READY}\n"))
    assert [t for t, _ in watchdogs(Crontabs(tables))] == [tables[1]]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("@reboot sleep 60 && $HOME/.local/bin/sparkrun run @official/x --tp 2", "sparkrun"),
        ("@reboot /usr/local/bin/trtllm-serve /srv/models/x", "TensorRT-LLM"),
        ("@reboot /opt/llama.cpp/build/bin/llama-server -m /srv/x.gguf", "llama.cpp"),
        ("@reboot ollama serve", "Ollama"),
        ("*/5 * * * * pgrep ds4-server || /opt/ds4/ds4-server -m x", "ds4"),
        ("@reboot ray start --head", "Ray"),
        ("@reboot cd /opt && python3 tabbyAPI/main.py", "TabbyAPI"),
        ("@reboot lmdeploy serve api_server x", "LMDeploy"),
        ("@reboot python3 -m mlc_llm serve x", "MLC LLM"),
    ],
)
def test_servers_and_launchers_of_the_field_are_watchdogs(line: str, word: str) -> None:
    (found,) = verdicts(line).values()
    assert found.word == word


@pytest.mark.parametrize("line", ["@daily xray start", "@daily ray status", "@daily /bin/serve-x"])
def test_words_of_every_day_are_none(line: str) -> None:
    assert verdicts(line) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("* * * * * /bin/true", 1),
        ("A=1\n* * * * * /bin/true\n@daily x", 3),
        ("* * * * * /bin/true\n", None),
        ("* * * * * /bin/true\n# end", None),
        ("* * * * * /bin/true\nA=1", None),
        ("", None),
    ],
)
def test_a_last_line_that_cron_does_not_run_is_known(text: str, number: int | None) -> None:
    assert on_host.unended(text) == number
