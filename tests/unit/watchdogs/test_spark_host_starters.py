"""spark-host finds what could start an engine: in a tree of our own, with real files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from facts.watchdogs import starters as facts_starters
from operations.watchdogs.resurrection import plan, unit_source
from tests.unit.on_host import module
from tests.unit.watchdogs.conftest import Write

holds, scopes, crontab = map(module, ("watchdogs.holds", "systemd.scopes", "watchdogs.crontab"))
UP = "#!/bin/sh\ncurl -sf localhost:8888/health || docker compose -p dsf up -d\n"


def read(starters: ModuleType, *words: str) -> facts_starters.Starters:
    return facts_starters.parse(starters.section({"words": list(words)}))


def reader(mentions: ModuleType, *words: str) -> Any:
    return mentions.Reader(words)


@pytest.mark.parametrize(
    ("command", "weight"),
    [
        (b"docker compose up -d", "starts"),
        (b"docker compose -p dsf \\\n  up -d", "starts"),
        (b"/usr/bin/podman start --all", "starts"),
        (b"vllm serve /models/x", "starts"),
        (b"docker system prune -f", "mentions"),
        (b"tar czf /backup/docker.tgz /etc/docker", "mentions"),
        (b"dockerd --debug", None),
        (b"/usr/bin/find /var/tmp -delete", None),
    ],
)
def test_a_command_is_weighed_by_its_words(
    mentions: ModuleType, command: bytes, weight: str | None
) -> None:
    assert reader(mentions).own(command) == weight


def test_a_stack_is_known_by_its_own_names_and_only_by_whole_ones(mentions: ModuleType) -> None:
    known = reader(mentions, "dsf-lab", "/opt/dsf-lab")
    assert known.own(b"/opt/dsf-lab/up.sh") == "mentions"
    assert known.own(b"/opt/dsf-lab2/up.sh --of my-dsf-lab-copy") is None


def test_scripts_are_followed_to_the_scripts_that_they_name(
    mentions: ModuleType, write: Write
) -> None:
    up = write("opt/up.sh", UP)
    wrapper = write("opt/wrapper.sh", f"#!/bin/sh\nexec {up}\n")
    harmless = write("opt/harmless.sh", "#!/bin/sh\ntrue\n")
    line = f"* * * * * {wrapper}; {harmless}\n".encode()
    assert reader(mentions).tokens(line, "/root") == [(str(wrapper), "starts")]


def test_two_scripts_that_name_each_other_come_to_an_end(
    mentions: ModuleType, write: Write, tmp_path: Path
) -> None:
    one = write("opt/one.sh", f"{tmp_path}/opt/two.sh\n")
    write("opt/two.sh", f"{one}\n")
    assert reader(mentions).tokens(f"{one}\n".encode(), "/root") == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("usr/local/bin/ready.sh", "* * * * * ready.sh"),
        ("home/bin/ready.sh", "@reboot ~/bin/ready.sh"),
        ("home/bin/ready.sh", "@reboot $HOME/bin/ready.sh"),
        ("home/bin/ready.sh", "@reboot bin/ready.sh"),
        ("opt/dsf/ready.sh", "*/5\t*\t*\t*\t*\tcd {tmp}/opt/dsf && ./ready.sh >> /var/log/x 2>&1"),
        ("opt/a b/ready.sh", None),  # a blank in a path is cut: such a line has to name docker
    ],
)
def test_a_script_is_found_however_the_line_names_it(
    mentions: ModuleType, write: Write, tmp_path: Path, place: str, line: str | None
) -> None:
    path = write(place, UP)
    text = (line or f"* * * * * '{path}'").format(tmp=tmp_path)
    found = reader(mentions).tokens(text.encode(), str(tmp_path / "home"))
    assert bool(found) == (line is not None)


def test_programs_and_large_files_are_no_scripts(mentions: ModuleType, write: Write) -> None:
    program = write("opt/program", "\0docker run")
    large = write("opt/large", "docker run\n" + "#" * mentions.SCRIPT_LIMIT_BYTES)
    assert reader(mentions).tokens(f"{program} {large}".encode(), "/root") == []


# Units


def test_a_script_beside_which_its_unit_runs_is_found(starters: ModuleType, write: Write) -> None:
    script = write("opt/ready.sh", UP)
    write(
        "etc/ready.service",
        f"[Service]\nWorkingDirectory={script.parent}\nExecStart=/bin/bash ready.sh\n",
    )
    (unit,) = read(starters).units
    assert (unit.name, unit.weight, unit.scripts) == ("ready.service", "starts", ("ready.sh",))


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("Environment=A=1 GUARDS={tmp}/opt", "/bin/sh ${{GUARDS}}/ready.sh"),
        ('Environment=A=1 "RUN=sh {tmp}/opt/ready.sh"', "/bin/sh -c '$RUN'"),
        ("EnvironmentFile=-{tmp}/etc/default", "/bin/sh $READY"),
    ],
)
def test_a_script_is_found_behind_a_units_environment(
    starters: ModuleType, write: Write, tmp_path: Path, given: str, command: str
) -> None:
    write("opt/ready.sh", UP)
    write("etc/default", f"# ours\nREADY={tmp_path}/opt/ready.sh\n")
    lines = f"[Service]\n{given}\nExecStart={command}\n".format(tmp=tmp_path)
    write("etc/ready.service", lines)
    (unit,) = read(starters).units
    assert (unit.name, unit.weight) == ("ready.service", "starts")


@pytest.mark.parametrize(("accept", "starts"), [("yes", True), ("no", False)])
def test_a_socket_that_starts_a_service_for_each_connection_is_its_trigger(
    starters: ModuleType, write: Write, accept: str, starts: bool
) -> None:
    write("etc/wake@.service", "[Service]\nExecStart=/usr/bin/docker start glm\n")
    write("etc/wake.socket", f"[Socket]\nListenStream=99\nAccept={accept}\n")
    (unit,) = read(starters).units
    assert [t.name for t in unit.triggers] == ["wake.socket"] * starts


def test_a_unit_that_starts_an_engines_unit_is_one_too(
    starters: ModuleType, mentions: ModuleType, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    etc = write("etc/eng.service", "[Service]\nExecStart=/usr/bin/docker start glm\n").parent
    write("etc/again.service", "[Service]\nExecStart=/bin/systemctl restart eng\n")
    monkeypatch.setattr(mentions.scopes, "UNIT_FOLDERS", (str(etc),))
    found = {unit.name: unit.direct for unit in read(starters).units}
    assert found == {"eng.service": True, "again.service": False}


@pytest.mark.parametrize("kind", ["UpheldBy", "OnFailureOf", "OnSuccessOf"])
def test_a_unit_that_another_one_starts_can_start(
    starters: ModuleType, write: Write, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write("etc/eng.service", "[Service]\nExecStart=/usr/bin/docker start glm\n")
    said = f"Id=eng.service\nActiveState=inactive\nUnitFileState=static\n{kind}=other.service\n"
    monkeypatch.setattr(scopes, "manager", lambda *_: ["systemctl"])
    monkeypatch.setattr(scopes, "run", lambda *_: (0, said, ""))
    (unit,) = read(starters).units
    assert unit.wanted_by == ("other.service",)
    assert unit_source(unit).status == "armed"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("podman-compose@", True),
        ("podman-vllm", True),
        ("podman-restart", False),
        ("podman-kube@", False),
    ],
)
def test_a_unit_is_not_podmans_own_for_its_name(
    starters: ModuleType, write: Write, name: str, found: bool
) -> None:
    write(f"etc/{name}.service", "[Service]\nExecStart=/usr/bin/podman start vllm\n")
    assert bool(read(starters).units) is found


TIMER = "[Timer]\nOnCalendar=minutely\n[Install]\nWantedBy=timers.target\n"


def test_a_service_behind_an_enabled_timer_is_armed(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    script = write("opt/up.sh", UP)
    write("etc/spark-ready.service", f"[Service]\nExecStart={script}\n")
    timer = write("etc/spark-ready.timer", TIMER)
    (tmp_path / "etc/timers.target.wants").mkdir()
    (tmp_path / "etc/timers.target.wants/spark-ready.timer").symlink_to(timer)
    (unit,) = read(starters).units
    assert (unit.name, unit.weight, unit.direct) == ("spark-ready.service", "starts", False)
    assert unit.scripts == (str(script),)
    assert unit_source(unit).status == "armed"
    todo = plan(read(starters))["units"]
    assert [(u["name"], u["stop"]) for u in todo] == [
        ("spark-ready.timer", True),
        ("spark-ready.service", True),
    ]


def test_a_timer_may_name_another_unit(starters: ModuleType, write: Write, tmp_path: Path) -> None:
    write("etc/lane.service", "[Service]\nExecStart=/usr/bin/docker start dsf\n")
    timer = write("etc/nightly.timer", "[Timer]\nOnCalendar=daily\nUnit = lane.service\n")
    (tmp_path / "etc/timers.target.wants").mkdir()
    (tmp_path / "etc/timers.target.wants/nightly.timer").symlink_to(timer)
    (unit,) = read(starters).units
    assert [t.name for t in unit.triggers] == ["nightly.timer"]
    assert unit_source(unit).status == "armed"


def test_an_engine_that_a_service_runs_itself_is_not_stopped_by_the_hold(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    unit = write("etc/vllm.service", "[Service]\nExecStart=/usr/bin/docker run --rm x\n")
    (tmp_path / "etc/multi-user.target.wants").mkdir()
    (tmp_path / "etc/multi-user.target.wants/vllm.service").symlink_to(unit)
    assert [(u["name"], u["stop"]) for u in plan(read(starters))["units"]] == [
        ("vllm.service", False)
    ]


@pytest.mark.parametrize("instance", ["lane@1.service", "lane@.service"])
def test_an_instance_of_a_template_arms_the_template(
    starters: ModuleType, write: Write, tmp_path: Path, instance: str
) -> None:
    unit = write("etc/lane@.service", "[Service]\nExecStart=docker start %i\n")
    (tmp_path / "etc/multi-user.target.wants").mkdir()
    (tmp_path / f"etc/multi-user.target.wants/{instance}").symlink_to(unit)
    (found,) = read(starters).units
    assert (found.name, unit_source(found).status) == ("lane@.service", "armed")


@pytest.mark.parametrize("named", ["", "Unit=lane@1.service\n", "Unit=lane@%i.service\n"])
def test_a_timer_of_an_instance_arms_the_template(
    starters: ModuleType, write: Write, tmp_path: Path, named: str
) -> None:
    write("etc/lane@.service", "[Service]\nExecStart=docker start %i\n")
    timer = write("etc/lane@.timer", f"[Timer]\nOnCalendar=daily\n{named}")
    (tmp_path / "etc/timers.target.wants").mkdir()
    (tmp_path / "etc/timers.target.wants/lane@1.timer").symlink_to(timer)
    (found,) = read(starters).units
    assert [(t.name, t.armed) for t in found.triggers] == [("lane@.timer", True)]
    assert unit_source(found).status == "armed"


def test_a_path_unit_is_a_trigger_like_a_timer(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    write("etc/lane.service", "[Service]\nExecStart=podman start lane\n")
    path = write("etc/drop.path", "[Path]\nPathExists=/run/drop\nUnit=lane.service\n")
    (tmp_path / "etc/multi-user.target.wants").mkdir()
    (tmp_path / "etc/multi-user.target.wants/drop.path").symlink_to(path)
    (found,) = read(starters).units
    assert [u["name"] for u in plan(read(starters))["units"]] == ["drop.path", "lane.service"]
    assert unit_source(found).why == "its own command, by drop.path"


def test_a_transient_unit_of_a_user_is_found(
    starters: ModuleType, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd-run --user --on-calendar=daily docker start x; nobody needs a unit file for that."""
    uid = os.getuid()
    folder = f"run/{uid}/systemd/transient"
    write(f"{folder}/run-r7.service", '[Service]\nExecStart="/usr/bin/docker" "start" "x"\n')
    write(f"{folder}/run-r7.timer", "[Timer]\nOnCalendar=daily\n")
    monkeypatch.setattr(scopes, "RUNTIME", str(tmp_path / "run/{}/systemd"))
    monkeypatch.setattr(scopes, "USER_FOLDERS", ())
    monkeypatch.setattr(scopes, "OWN_USER_FOLDERS", ("~/nothing",))
    people = [one for one in holds.pwd.getpwall() if one.pw_uid == uid][:1]
    monkeypatch.setattr(scopes, "users", lambda: people)
    (found,) = read(starters).units
    assert (found.scope, found.name) == (people[0].pw_name, "run-r7.service")
    assert [t.name for t in found.triggers] == ["run-r7.timer"]


def test_masked_units_dormant_ones_and_the_engines_themselves_are_left_alone(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    write("usr/lib/masked.service", "[Service]\nExecStart=docker start x\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/masked.service").symlink_to("/dev/null")
    write("etc/docker.service", "[Service]\nExecStart=/usr/bin/dockerd --config /etc/docker/d\n")
    write("etc/after.service", "[Unit]\nAfter=docker.service\n[Service]\nExecStart=/bin/true\n")
    write("etc/stops.service", "[Service]\nExecStart=/bin/true\nExecStop=docker stop x\n")
    write("etc/dormant.service", "[Service]\nExecStart=docker start x\n")
    (unit,) = read(starters).units
    assert (unit.name, unit_source(unit).status) == ("dormant.service", "inert")


def test_a_drop_in_that_makes_a_harmless_unit_start_an_engine_is_seen(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    unit = write("etc/plain.service", "[Service]\nExecStart=/bin/true\n")
    write("etc/plain.service.d/x.conf", "[Service]\nExecStartPost=docker \\\n start x\n")
    (tmp_path / "etc/multi-user.target.wants").mkdir()
    (tmp_path / "etc/multi-user.target.wants/plain.service").symlink_to(unit)
    assert [u.name for u in read(starters).units] == ["plain.service"]


def test_a_held_unit_is_known_by_its_drop_in(starters: ModuleType, write: Write) -> None:
    write("etc/lane.service", "[Service]\nExecStart=docker start x\n")
    write(f"etc/lane.service.d/{holds.DROP_IN}", holds.HELD)
    found = read(starters)
    assert [unit_source(unit).status for unit in found.units] == ["held"]
    assert plan(found) == {"units": [], "scripts": []}


# At jobs


ENVIRONMENT = "#!/bin/sh\n# atrun uid=0 gid=0\numask 22\nNOTE=docker\\ run; export NOTE\ncd /root\n"


def test_at_jobs_are_judged_by_their_commands_not_by_their_environment(
    starters: ModuleType, write: Write
) -> None:
    # a: queue, then five hex digits of the job's number, eight of minutes since 1970
    write("at/a0001201c8c2a0", ENVIRONMENT + "docker compose up -d\n")
    write("at/a0001301c8c2a0", ENVIRONMENT + "/bin/true\n")
    write("at/.SEQ", "docker\n")
    (job,) = read(starters).at_jobs
    assert (job.number, job.uid, job.when_s) == (0x12, os.getuid(), 0x01C8C2A0 * 60)


# Folders of cron


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("guard", 0o755, None),
        ("guard.sh", 0o755, "run-parts ignores such a name"),
        ("guard.dpkg-old", 0o755, "run-parts ignores such a name"),
        ("guard", 0o644, "not executable"),
    ],
)
def test_run_parts_passes_over_some_scripts(
    starters: ModuleType, write: Write, name: str, mode: int, why: str | None
) -> None:
    assert crontab.why_skipped(str(write(f"etc/cron.hourly/{name}", UP, mode))) == why


@pytest.mark.parametrize(("mode", "why"), [(0o755, None), (0o644, "not executable")])
def test_what_runs_when_a_link_comes_up_is_a_script_whatever_its_name(
    starters: ModuleType,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    why: str | None,
) -> None:
    path = write("networkd-dispatcher/routable.d/50-engine.sh", UP, mode)
    write("networkd-dispatcher/routable.d/40-ntp", "#!/bin/sh\ntrue\n", 0o755)
    monkeypatch.setattr(starters, "HOOKS", (str(tmp_path / "networkd-dispatcher" / "*.d"),))
    (script,) = read(starters).scripts
    assert (script.path, script.inert, script.held) == (str(path), why, False)
    if why is None:
        holds.put({"units": [], "scripts": [str(path)]})
        assert not path.stat().st_mode & 0o111
        assert [one.held for one in read(starters).scripts] == [True]
        holds.rearm()
        assert path.stat().st_mode & 0o777 == mode


# Holding


@pytest.fixture
def lane(starters: ModuleType, write: Write, tmp_path: Path) -> Path:
    """A tree with an enabled service and a script of cron.hourly, both starting an engine."""
    unit = write("etc/lane.service", "[Service]\nExecStart=docker start x\n")
    (tmp_path / "etc/multi-user.target.wants").mkdir()
    (tmp_path / "etc/multi-user.target.wants/lane.service").symlink_to(unit)
    write("etc/cron.hourly/guard", UP, 0o750)
    return tmp_path


def everything(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Each file and link below a folder, but for our own records: mode and content."""
    own = ("journal", "held.json")
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.relative_to(folder).parts[0] not in own and (path.is_symlink() or path.is_file())
    }


def test_what_is_held_comes_back_as_it_was(starters: ModuleType, lane: Path) -> None:
    before = everything(lane)
    holds.put(plan(read(starters)))
    held = read(starters)
    assert [unit_source(u).status for u in held.units] == ["held"]
    assert [(s.held, s.inert) for s in held.scripts] == [(True, "not executable")]
    assert plan(held) == {"units": [], "scripts": []}
    holds.rearm()
    assert everything(lane) == before
    assert not (lane / "held.json").exists()


def test_a_link_in_a_cron_folder_comes_back_as_a_link(
    starters: ModuleType, write: Write, tmp_path: Path
) -> None:
    script = write("opt/up.sh", UP, 0o755)
    (tmp_path / "etc/cron.hourly").mkdir(parents=True)
    (tmp_path / "etc/cron.hourly/guard").symlink_to("../../opt/up.sh")
    before = everything(tmp_path)
    holds.put(plan(read(starters)))
    assert [(s.path, s.held) for s in read(starters).scripts] == [
        (f"{tmp_path}/etc/cron.hourly/guard", True)
    ]
    assert script.stat().st_mode & 0o777 == 0o755
    holds.put(plan(read(starters)))
    holds.rearm()
    assert everything(tmp_path) == before


def test_a_script_of_a_cron_folder_that_runs_is_awaited_or_ended(
    starters: ModuleType, lane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crontab.settle, "__defaults__", ((), 0))
    guard = lane / "etc/cron.hourly/guard"
    guard.write_text("echo under way\n: docker compose up -d\nread line\n")
    process = subprocess.Popen(
        ["/bin/sh", str(guard)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"under way\n"
    holds.put(plan(read(starters)))
    assert process.wait(5) == -15


def test_holding_twice_keeps_the_first_mode(starters: ModuleType, lane: Path) -> None:
    before = everything(lane)
    todo = plan(read(starters))
    holds.put(todo)
    holds.put(todo)
    holds.rearm()
    assert everything(lane) == before


def test_giving_back_twice_changes_nothing(starters: ModuleType, lane: Path) -> None:
    holds.put(plan(read(starters)))
    holds.rearm()
    before = everything(lane)
    holds.rearm()
    assert everything(lane) == before


def test_a_mode_that_undo_gave_back_is_read_anew(starters: ModuleType, lane: Path) -> None:
    holds.put(plan(read(starters)))
    (lane / "etc/cron.hourly/guard").chmod(0o700)
    holds.put(plan(read(starters)))
    holds.rearm()
    assert (lane / "etc/cron.hourly/guard").stat().st_mode & 0o777 == 0o700


def test_originals_are_in_the_journal_before_the_change(starters: ModuleType, lane: Path) -> None:
    holds.put(plan(read(starters)))
    paths = {e.get("path") or e["name"] for e in holds.journal.entries()}
    assert paths == {
        f"{lane}/etc/cron.hourly/guard",
        f"{lane}/etc/lane.service.d/{holds.DROP_IN}",
        "unit.lane.service",
    }


def test_folders_that_were_made_for_a_hold_go_with_it_and_no_others(
    starters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/.config").mkdir(parents=True)
    me = holds.pwd.getpwuid(os.getuid())

    class Person:
        pw_dir, pw_uid, pw_gid = str(tmp_path / "home"), me.pw_uid, me.pw_gid

    monkeypatch.setattr(holds.pwd, "getpwnam", lambda _: Person)
    unit = {"scope": "milo", "uid": 1000, "name": "x.service", "active": "inactive"}
    more = {"file_state": "", "stop": True, "restart": False}
    holds.put({"units": [unit | more], "scripts": []})
    assert (tmp_path / "home/.config/systemd/user/x.service.d").is_dir()
    holds.rearm()
    assert list((tmp_path / "home").rglob("*")) == [tmp_path / "home/.config"]


def test_a_user_who_is_gone_keeps_no_other_unit_held(
    starters: ModuleType, lane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Person:
        pw_dir = str(lane / "home")

    (lane / "home").mkdir()
    before = everything(lane)
    monkeypatch.setattr(holds.pwd, "getpwnam", lambda _: Person)
    unit = {"scope": "milo", "uid": 1000, "name": "x.service", "active": "inactive"}
    first = {"units": [unit | {"file_state": "", "stop": True, "restart": False}], "scripts": []}
    holds.put(first)
    holds.put(plan(read(starters)))

    def gone(name: str) -> Any:
        raise KeyError(name)

    shutil.rmtree(lane / "home")
    monkeypatch.setattr(holds.pwd, "getpwnam", gone)
    holds.rearm()
    assert everything(lane) == before
    assert not (lane / "held.json").exists()


def test_what_cannot_be_given_back_is_said_after_all_the_rest(
    starters: ModuleType, lane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(lane)
    holds.put(plan(read(starters)))
    record = holds.load()
    # Held before the other one; its home leads elsewhere by now.
    unit = {"scope": "milo", "uid": 1000, "name": "x.service", "restart": []}
    record["units"] = {"milo x.service": unit, **record["units"]}
    holds.keep(record)

    class Person:
        pw_dir = str(lane / "home")

    (lane / "home/.config").mkdir(parents=True)
    (lane / "home/.config/systemd").symlink_to(lane)
    monkeypatch.setattr(holds.pwd, "getpwnam", lambda _: Person)
    with pytest.raises(holds.Failed, match="leads out of"):
        holds.rearm()
    shutil.rmtree(lane / "home")
    assert everything(lane) == before
    assert (lane / "held.json").exists(), "another re-arm looks again"


def test_a_home_that_leads_elsewhere_is_not_written_to(
    starters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/.config").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home/.config/systemd").symlink_to(tmp_path / "elsewhere")

    class Person:
        pw_dir = str(tmp_path / "home")

    monkeypatch.setattr(holds.pwd, "getpwnam", lambda _: Person)
    unit = {"scope": "milo", "uid": 1000, "name": "x.service", "active": "inactive"}
    with pytest.raises(ValueError, match="leads out of"):
        holds.put(
            {"units": [unit | {"file_state": "", "stop": True, "restart": False}], "scripts": []}
        )
    assert not list((tmp_path / "elsewhere").iterdir())
    holds.rearm()
