"""spark-host cpufreq: who writes a governor, by the commands; the power profile and its undo."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

cpufreq = module("cpufreq")
kinds = module("kinds")
restore = module("restore")
starters = module("starters")
journal = module("journal")
units = module("units")

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
        ("cpupower frequency-info", False),
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
    monkeypatch.setattr(starters, "SYSTEM_FOLDERS", (str(tmp_path),))
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
    assert sorted(cpufreq.writers()) == ["nvidia-clocks.service", "vendor.service"]


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
    assert kinds.look_profile(entry, here)["verdict"] == "restore"
    failures: dict[str, str] = {}
    restore.give_clocks([entry], failures)
    assert (kept.read_text(), failures) == ("power-saver", {})
    assert kinds.look_profile(entry, here)["verdict"] == "same"


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
    assert kinds.look_profile(entry, {"LoadState": load})["verdict"] == word


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
            "bottom_khz": None,
            "steps_khz": [338000, 1976000, 3900000],
        }
    }
