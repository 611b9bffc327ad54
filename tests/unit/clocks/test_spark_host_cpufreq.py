"""spark-host cpufreq: who writes a governor, by the commands; the power profile and its undo."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

cpufreq = module("clocks.cpufreq")
kept_clocks = module("clocks.kept")
restore = module("undo.restore")
crontab, holds, scopes = map(module, ("watchdogs.crontab", "watchdogs.holds", "systemd.scopes"))
journal = module("run.journal")
units = module("systemd.units")

LOOP = "for g in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do {} done"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/usr/bin/cpupower frequency-set -g performance", True),
        ("cpupower -c all frequency-set -g performance", True),
        ("/usr/bin/cpufreq-set -r -g ondemand", True),
        (LOOP.format("echo performance > $g;"), True),
        ("echo performance | tee /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", True),
        ("Path('scaling_governor').write_text('performance')", True),
        ('for g in /sys/c/policy*/scaling_governor\ndo echo powersave > "${g}"\ndone', True),
        ("G=/sys/c/policy0/scaling_governor; printf performance >$G", True),
        ("find /sys -name scaling_governor | while read -r f; do echo x > $f; done", True),
        ("ls /sys/c/*/scaling_governor | xargs -n1 tee < /run/want", True),
        ("dd if=/run/want of=/sys/c/policy0/scaling_governor", True),
        ("for p in glob('/sys/c/*/scaling_governor'):\n    open(p, 'w').write('x')", True),
        ("cpupower frequency-info", False),
        ('echo "gov $(cat /sys/c/policy0/scaling_governor)" > /run/metrics', False),
        ("G=$(cat /sys/c/policy0/scaling_governor); printf '%s' \"$G\" | tee /run/metrics", False),
        ("cat /sys/c/policy0/scaling_governor 2>/dev/null | tee /tmp/log", False),
        ("for g in /sys/c/*/scaling_governor; do echo $g >> /tmp/log; done", False),
        ("open('/sys/c/policy0/scaling_governor').read()", False),
        ("# echo performance > /sys/c/policy0/scaling_governor", False),
        (LOOP.format("cat $g;"), False),
        ("/usr/bin/true", False),
    ],
)
def test_a_command_that_sets_a_governor_is_told_from_one_that_reads_it(
    text: str, found: bool
) -> None:
    assert cpufreq.writes_governor(text.encode()) is found


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a host's units."""
    monkeypatch.setattr(scopes, "UNIT_FOLDERS", (str(tmp_path),))
    return tmp_path


def test_writers_are_found_by_their_commands_and_by_their_scripts(folders: Path) -> None:
    script = folders / "clocks.sh"
    script.write_text("#!/bin/sh\nsleep 60\n" + LOOP.format("echo powersave > $g;"))
    for name, command in {
        "vendor.service": "/usr/bin/cpupower frequency-set -g performance",
        "nvidia-clocks.service": f"/bin/sh {script}",
        "reader.service": "/bin/cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "cpupower@.service": "/usr/bin/cpupower frequency-set -g %i",
        "spark-converge-governor.service": "/bin/sh -c 'echo schedutil > scaling_governor'",
        "rc-local.service": f"{script} start",
    }.items():
        (folders / name).write_text(f"[Service]\nExecStart={command}\n")
    (folders / "masked.service").symlink_to("/dev/null")
    assert cpufreq.writers() == (["nvidia-clocks.service", "vendor.service"], [])


def test_of_a_template_the_instances_that_run_or_start_at_boot_are_writers(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = folders / "gov@.service"
    template.write_text("[Service]\nExecStart=/usr/bin/cpupower frequency-set -g %i\n")
    (folders / "multi-user.target.wants").mkdir()
    (folders / "multi-user.target.wants" / "gov@performance.service").symlink_to(template)
    monkeypatch.setattr(cpufreq, "MARKS", f"{folders}/invocation:")
    (folders / "invocation:gov@powersave.service").symlink_to("0123")
    assert cpufreq.writers() == (["gov@performance.service", "gov@powersave.service"], [])


def test_what_runs_an_engine_is_never_among_those_that_go_down(folders: Path) -> None:
    """Its script sets the governor, then becomes the engine: to stop it is to stop the engine."""
    script = folders / "engine.sh"
    script.write_text("#!/bin/sh\n" + LOOP.format("echo performance > $g;") + "\nexec vllm serve\n")
    sets = "/bin/sh -c 'echo performance > /sys/c/policy0/scaling_governor'"
    for name, command in {
        "engine.service": str(script),
        "direct.service": "/bin/sh -c 'cpupower frequency-set -g performance; docker start e'",
        "named.service": "/bin/sh -c 'cpupower frequency-set -g performance; /srv/dsf-lab/run'",
        "docker.service": "/usr/bin/dockerd",
        "containerd.service": "/usr/bin/containerd",
        "vendor.service": sets,
    }.items():
        (folders / name).write_text(f"[Service]\nExecStart={command}\n")
    for name in ("docker", "containerd"):
        (folders / f"{name}.service.d").mkdir()
        (folders / f"{name}.service.d" / "clocks.conf").write_text(
            f"[Service]\nExecStartPre={sets}\n"
        )
    held = folders / "held.service"
    held.write_text(f"[Service]\nExecStart={script}\n")
    (folders / "held.service.d").mkdir()
    (folders / "held.service.d" / holds.DROP_IN).write_text(holds.HELD)
    engines = ["containerd", "direct", "docker", "engine", "named"]
    assert cpufreq.writers(["dsf-lab"]) == (["vendor.service"], [f"{e}.service" for e in engines])


def test_c01_cron_lines_that_set_a_governor_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = crontab.places(str(tmp_path))
    users, drop_ins, daily = map(Path, (places.users, places.drop_ins, f"{places.periodic}daily"))
    for folder in (users, drop_ins, daily):
        folder.mkdir(parents=True)
    monkeypatch.setattr(crontab, "PLACES", places)
    monkeypatch.setattr(crontab, "why_inert", lambda path: "no" if path.endswith(".off") else None)
    script = tmp_path / "clocks.sh"
    script.write_text(LOOP.format("echo performance > $g;"))
    sets = "cpupower frequency-set -g performance"
    (users / "root").write_text(f"# {sets}\n@reboot sleep 60 && {sets}\n0 * * * * {script}\n")
    (drop_ins / "clocks").write_text(f"#SPARK-HELD-20260826 @reboot root {sets}\n@daily root ls\n")
    (drop_ins / "more").write_text(f"@reboot root {sets}\n")
    (drop_ins / "clocks.off").write_text(f"@reboot root {sets}\n")
    (daily / "clocks").write_text(f"#!/bin/sh\n{sets}\n")
    (daily / "clocks").chmod(0o755)
    (daily / "off").write_text(f"#!/bin/sh\n{sets}\n")
    (daily / "gone").symlink_to("nowhere")
    assert list(cpufreq.cron_writers()) == [
        f"{users}/root line 2",
        f"{users}/root line 3",
        f"{drop_ins}/more line 1",
        f"{daily}/clocks",
    ]


def policy_at(top: Path, name: str, **files: str) -> Path:
    folder = top / name
    folder.mkdir(parents=True)
    online = {"affected_cpus": "0", "cpuinfo_max_freq": "3900000"}
    for file, text in {**online, **files}.items():
        (folder / file).write_text(text + "\n")
    return folder


def test_what_an_owner_had_set_is_kept_before_it_goes_down_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tuned sets ondemand and lifts its cap when it stops."""
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    sysfs = tmp_path / "cpufreq"
    monkeypatch.setattr(cpufreq, "POLICIES", str(sysfs))
    tuned = {"scaling_governor": "performance", "scaling_max_freq": "3000000"}
    one = policy_at(sysfs, "policy0", **tuned)
    policy_at(sysfs, "policy1", scaling_governor="performance", scaling_max_freq="3900000")
    policy_at(sysfs, "policy2", scaling_max_freq="3900000")  # its governor cannot be read

    def down(_: dict[str, Any]) -> dict[str, Any]:
        names = {entry["name"] for entry in journal.entries()}
        assert names == {"governor.policy0", "governor.policy1", "cpu_max.policy0"}
        (one / "scaling_governor").write_text("ondemand\n")
        (one / "scaling_max_freq").write_text("3900000\n")
        return {}

    monkeypatch.setattr(units, "down", down)
    cpufreq.settle({"stop": ["tuned.service"], "disable": [], "mask": [], "profile": None})
    entries = [*journal.entries()]
    assert {e["name"]: e["value"] for e in entries} == {
        "governor.policy0": "performance",
        "governor.policy1": "performance",
        "cpu_max.policy0": "3000000",
    }
    looked = restore.look(entries)
    assert {v["name"]: v["verdict"] for _, v in looked} == {
        "governor of policy0": "restore",
        "governor of policy1": "same",
        "clock cap of policy0": "restore",
    }
    assert restore.give_back(looked) == {}
    assert {n: (one / n).read_text().strip() for n in tuned} == tuned


def test_a_governor_that_was_kept_before_stays_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    monkeypatch.setattr(cpufreq, "POLICIES", str(tmp_path / "cpufreq"))
    monkeypatch.setattr(units, "down", lambda _: {})
    policy_at(tmp_path / "cpufreq", "policy0", scaling_governor="schedutil")
    journal.setting("governor.policy0", "performance", "schedutil")
    before = [*journal.entries()]
    cpufreq.settle({"stop": [], "disable": [], "mask": [], "profile": None})
    assert [*journal.entries()] == before


def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str) -> Path:
    """A busctl before a power-profiles-daemon of before 0.20; the file that holds the profile."""
    kept = tmp_path / "profile"
    kept.write_text(profile)
    busctl = tmp_path / "busctl"
    busctl.write_text(
        f"""#!/bin/sh
case "$*" in
*org.freedesktop.UPower*) echo "The name is not activatable" >&2; exit 1 ;;
*get-property*) echo "s \\"$(cat {kept})\\"" ;;
*set-property*) for word; do :; done; printf %s "$word" > {kept} ;;
esac
"""
    )
    busctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "runs").symlink_to("invocation")
    monkeypatch.setattr(cpufreq, "RUNS", str(tmp_path / "runs"))
    return kept


def test_c07_the_profile_is_kept_and_put_on_neutral_before_the_daemon_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    kept = daemon(tmp_path, monkeypatch, "power-saver")
    assert cpufreq.profile() == "power-saver"
    down: list[dict[str, Any]] = []

    def seen(todo: dict[str, Any]) -> dict[str, Any]:
        assert kept.read_text() == "balanced"
        down.append(todo)
        return {}

    monkeypatch.setattr(units, "down", seen)
    cpufreq.settle({"stop": ["a.service"], "disable": [], "mask": [], "profile": "power-saver"})
    assert [one["stop"] for one in down] == [["a.service"]]
    (entry,) = journal.entries()
    assert (entry["name"], entry["value"], entry["ours"]) == (
        cpufreq.PROFILE,
        "power-saver",
        ["balanced"],
    )
    here = {"LoadState": "loaded"}
    monkeypatch.setattr(units, "show", lambda names: dict.fromkeys(names, here))
    looked = restore.look([entry])
    assert [(v["name"], v["verdict"]) for _, v in looked] == [("power profile", "restore")]
    failures = restore.give_back(looked)
    assert (kept.read_text(), failures) == ("power-saver", {})
    assert kept_clocks.look_profile(entry, here)["verdict"] == "same"


@pytest.mark.parametrize(
    ("now", "load", "word"),
    [
        (None, "masked", "restore"),
        ("balanced", "loaded", "restore"),
        ("power-saver", "loaded", "same"),
        ("performance", "loaded", "edited"),
        (None, "not-found", "gone"),
    ],
)
def test_a_profile_chosen_by_somebody_since_is_left(
    monkeypatch: pytest.MonkeyPatch, now: str | None, load: str, word: str
) -> None:
    monkeypatch.setattr(cpufreq, "profile", lambda: now)
    entry = {"name": cpufreq.PROFILE, "value": "power-saver", "ours": ["balanced"]}
    assert kept_clocks.look_profile(entry, {"LoadState": load})["verdict"] == word


def test_a_daemon_that_does_not_answer_leaves_the_rest_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon(tmp_path, monkeypatch, "balanced")
    (tmp_path / "busctl").write_text("#!/bin/sh\necho 'Connection timed out' >&2\nexit 1\n")
    assert cpufreq.profile_or_why() == {"unknown": "power profile: Connection timed out"}


def test_limits_and_steps_are_read_in_khz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "policy0"
    folder.mkdir()
    for name, text in {
        "scaling_governor": "schedutil",
        "scaling_available_governors": "performance schedutil",
        "affected_cpus": "0 1",
        "scaling_max_freq": "3300000",
        "cpuinfo_max_freq": "3900000",
        "scaling_available_frequencies": "338000 1976000 3900000",
    }.items():
        (folder / name).write_text(text + "\n")
    monkeypatch.setattr(cpufreq, "POLICIES", str(tmp_path))
    assert json.loads(json.dumps(cpufreq.policies())) == {
        "policy0": {
            "governor": "schedutil",
            "offered": ["performance", "schedutil"],
            "online_cpus": "0 1",
            "cap_khz": 3300000,
            "top_khz": 3900000,
            "back_khz": None,
            "bottom_khz": None,
            "steps_khz": [338000, 1976000, 3900000],
        }
    }


@pytest.mark.parametrize(
    ("original", "kept"), [("3900000", False), ("2000000", True)], ids=["nobody's", "somebody's"]
)
def test_a_cap_of_ours_is_given_back_to_the_limit_that_was_found(
    disk: Path, monkeypatch: pytest.MonkeyPatch, original: str, kept: bool
) -> None:
    monkeypatch.setattr(cpufreq, "POLICIES", str(disk))
    limit = disk / "policy0" / "scaling_max_freq"
    limit.parent.mkdir()
    (disk / "policy0" / "cpuinfo_max_freq").write_text("3900000\n")
    limit.write_text("3300000\n")
    assert cpufreq.policies()["policy0"]["back_khz"] is None, "nobody's journal has it"
    journal.setting("cpu_max.policy0", original, "3300000")
    assert cpufreq.policies()["policy0"]["back_khz"] == int(original)
    assert cpufreq.main(["uncap", "policy0"]) == {}
    assert limit.read_text() == f"{original}\n"
    assert cpufreq.policies()["policy0"]["back_khz"] is None
    assert (journal.load("settings", "cpu_max.policy0") is not None) is kept


def test_a_limit_that_somebody_chose_since_or_a_start_lifted_is_none_of_ours(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """settle journals a top that the next start brings: no cap is to be put back over it."""
    monkeypatch.setattr(cpufreq, "POLICIES", str(disk))
    limit = disk / "policy0" / "scaling_max_freq"
    limit.parent.mkdir()
    (disk / "policy0" / "cpuinfo_max_freq").write_text("3900000\n")
    journal.setting("cpu_max.policy0", "2000000", "3900000")
    journal.setting("cpu_max.policy0", "2000000", "3300000")
    for now in ("2500000", "3900000"):
        limit.write_text(now + "\n")
        assert cpufreq.policies()["policy0"]["back_khz"] is None
        cpufreq.main(["uncap", "policy0"])
        assert limit.read_text() == now + "\n"
