"""Units taken down and given back: real systemctl on a tree of its own, links compared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from facts.systemd import services
from tests.unit.on_host import Cut, module, tree

REAL = shutil.which("systemctl")
pytestmark = pytest.mark.skipif(not REAL, reason="no systemctl on this machine")

journal, links, units = module("run.journal"), module("systemd.links"), module("systemd.units")
restore = module("undo.restore")

# What a running manager answers; enablement is left to the real program.
SYSTEMCTL = """#!/bin/sh
root={root}
case $1 in
daemon-reload) ;;
start|stop)
    verb=$1; shift 2
    for unit; do
        if [ "$verb" = stop ]; then rm -f "$root/active/$unit"
        elif [ "$(readlink "$root/etc/systemd/system/$unit")" = /dev/null ]; then
            echo "Unit $unit is masked." >&2; failed=1
        else touch "$root/active/$unit"; fi
    done
    exit ${failed:-0} ;;
show)
    shift 4
    for unit; do
        echo "Id=$unit"
        if [ -e "$root/usr/lib/systemd/system/$unit" ]; then echo LoadState=loaded
        elif [ -e "$root/etc/systemd/system/$unit" ]; then echo LoadState=loaded
        else echo LoadState=not-found; fi
        [ -e "$root/active/$unit" ] && echo ActiveState=active || echo ActiveState=inactive
        echo "UnitFileState=$({real} --root="$root" is-enabled "$unit" 2>/dev/null)"
        echo
    done ;;
*) exec {real} --root="$root" "$@" ;;
esac
"""
UNITS = {
    "cups.service": "[Install]\nWantedBy=printer.target\nAlso=cups.socket\nAlias=printd.service\n",
    "cups.socket": "[Socket]\nListenStream=/run/cups\n[Install]\nWantedBy=sockets.target\n",
    "colord.service": "[Service]\nExecStart=/bin/true\n",
    "bluetooth.service": "[Install]\nWantedBy=bluetooth.target\nAlias=dbus-org.bluez.service\n",
    "atop.service": "[Install]\nWantedBy=multi-user.target\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host: cups enabled and running, bluetooth enabled, colord static, atop masked by hand."""
    top = tmp_path / "root"
    shipped = top / "usr" / "lib" / "systemd" / "system"
    for folder in (shipped, top / "etc" / "systemd" / "system", top / "active", top / "bin"):
        folder.mkdir(parents=True)
    for name, text in UNITS.items():
        (shipped / name).write_text(text)
    (top / "bin" / "systemctl").write_text(
        SYSTEMCTL.replace("{root}", str(top)).replace("{real}", str(REAL))
    )
    (top / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{top / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(module("watchdogs.holds"), "RECORD", str(tmp_path / "held.json"))
    system = str(top / "etc" / "systemd" / "system")
    monkeypatch.setattr(links, "FOLDERS", (system,))
    monkeypatch.setattr(units, "FOLDERS", (system, str(shipped)))
    units.systemctl("enable", "--quiet", "cups.service", "bluetooth.service")
    units.systemctl("mask", "--quiet", "atop.service")
    for name in ("cups.service", "cups.socket", "atop.service"):
        (top / "active" / name).touch()
    return top


TODO = {
    "stop": ["cups.socket", "cups.service"],
    "disable": ["cups.socket", "cups.service", "bluetooth.service"],
    "mask": ["colord.service"],
}


def undo() -> dict[str, Any]:
    answer: dict[str, Any] = restore.undo(frozenset())
    return answer


def left(answer: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["why"] for one in answer["left"]}


def system(root: Path) -> Path:
    return root / "etc" / "systemd" / "system"


def test_down_and_undo_leave_every_link_and_state_as_found(root: Path) -> None:
    before = tree(root)
    units.down(TODO)
    assert (root / "active" / "atop.service").exists()
    assert not (root / "active" / "cups.socket").exists()
    assert not (system(root) / "printd.service").is_symlink()
    assert os.readlink(system(root) / "colord.service") == "/dev/null"  # noqa: PTH115
    answer = undo()
    assert answer["ok"], answer
    assert tree(root) == before
    assert {"unit cups.service", "unit colord.service"} <= {*answer["restored"]}


def test_b03_a_stray_link_of_a_half_done_disable_comes_back_and_no_other(root: Path) -> None:
    (system(root) / "bluetooth.target.wants" / "bluetooth.service").unlink()
    before = tree(root)
    units.down({"stop": [], "disable": ["bluetooth.service"], "mask": []})
    assert not (system(root) / "dbus-org.bluez.service").is_symlink()
    assert undo()["ok"]
    assert tree(root) == before


def test_b07_a_mask_of_the_owner_stays_and_what_ran_masked_is_a_note(root: Path) -> None:
    before = tree(system(root))
    units.down({"stop": ["atop.service"], "disable": [], "mask": []})
    answer = undo()
    assert answer["ok"]
    assert tree(system(root)) == before
    assert answer["notes"] == [
        "unit atop.service: it ran although it was masked; it cannot be started so"
    ]


def test_the_first_state_counts_when_units_are_taken_down_twice(root: Path) -> None:
    before = tree(root)
    units.down(TODO)
    units.down(TODO)
    assert undo()["ok"]
    assert tree(root) == before


def test_a_unit_that_the_owner_enabled_again_is_not_touched(root: Path) -> None:
    before = tree(root)
    units.down(TODO)
    units.systemctl("enable", "--quiet", "cups.service")
    units.systemctl("start", "--", "cups.service", "cups.socket")
    answer = undo()
    assert answer["ok"], answer
    assert "unit cups.service" not in answer["restored"]
    assert tree(root) == before


def test_a_unit_that_the_owner_masked_since_is_left_and_named(root: Path) -> None:
    units.down(TODO)
    units.systemctl("mask", "--quiet", "cups.service")
    answer = undo()
    assert not answer["ok"]
    why = left(answer)["unit cups.service"]
    assert why == "it was enabled and running, it is masked and not running"
    assert os.readlink(system(root) / "cups.service") == "/dev/null"  # noqa: PTH115
    assert (root / "active" / "cups.socket").exists(), "the others are given back"


def test_a_unit_that_the_owner_started_since_runs_on(root: Path) -> None:
    units.down(TODO)
    units.systemctl("start", "--", "bluetooth.service")
    answer = undo()
    assert answer["ok"], answer
    assert (root / "active" / "bluetooth.service").exists()


def test_a_unit_whose_package_went_is_a_note(root: Path) -> None:
    units.down({"stop": [], "disable": ["bluetooth.service"], "mask": []})
    (root / "usr" / "lib" / "systemd" / "system" / "bluetooth.service").unlink()
    answer = undo()
    assert "unit bluetooth.service: it is not installed any more" in answer["notes"]


def test_our_own_unit_ends_and_goes_with_its_link(root: Path) -> None:
    before = tree(root)
    text = b"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    path = system(root) / "spark-converge-governor.service"
    journal.put(str(path), 0o644, (os.getuid(), os.getgid()), text)
    units.enable("spark-converge-governor.service")
    assert (system(root) / "multi-user.target.wants" / path.name).is_symlink()
    units.systemctl("start", "--", path.name)
    assert undo()["ok"]
    assert tree(root) == before


def test_a_default_target_that_no_link_named_is_named_by_none_again(root: Path) -> None:
    before = tree(root)
    for name in ("multi-user.target", "graphical.target"):
        (root / "usr" / "lib" / "systemd" / "system" / name).write_text("[Unit]\nDescription=x\n")
    units.default("multi-user.target")
    assert (system(root) / "default.target").is_symlink()
    assert undo()["ok"]
    assert tree(system(root)) == {k[19:]: v for k, v in before.items() if k.startswith("etc/sys")}


def targets(root: Path) -> None:
    for name in ("multi-user.target", "graphical.target"):
        (root / "usr" / "lib" / "systemd" / "system" / name).write_text("[Unit]\nDescription=x\n")


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("/usr/lib/systemd/system/gone.target", "which is not there"),
        ("/mnt/sysimage/usr/lib/systemd/system/multi-user.target", "which is not there"),
        ("../../../elsewhere/multi-user.target", "outside of systemd's folders"),
        (None, "a plain file instead of a link"),
    ],
)
def test_b11_a_default_target_that_leads_nowhere_is_set_and_given_back_as_it_was(
    root: Path, target: str | None, fault: str
) -> None:
    targets(root)
    path = system(root) / "default.target"
    (root / "etc" / "elsewhere").mkdir()
    (root / "etc" / "elsewhere" / "multi-user.target").write_text("")
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "multi-user.target").write_text("")
    if target:
        path.symlink_to(target)
    else:
        path.write_text("[Unit]\nRequires=graphical.target\n")
        path.chmod(0o640)
    before = tree(root)
    assert fault in units.default_fault()
    units.default("multi-user.target")
    assert os.readlink(path).endswith("/multi-user.target")  # noqa: PTH115
    assert undo()["ok"]
    assert tree(root) == before


def test_b05_an_alias_of_a_masked_unit_still_leads_to_it(root: Path) -> None:
    """systemd calls the alias of a masked unit a unit of its own that never runs."""
    shipped = root / "usr" / "lib" / "systemd" / "system"
    (shipped / "printd3.service").symlink_to("cups.service")
    (system(root) / "printing.service").symlink_to(shipped / "printd3.service")
    units.systemctl("mask", "--quiet", "cups.service")
    assert units.canonical("printing.service") == "cups.service"
    found = units.section({"units": ["printing.service", "absent.service"]})["units"]
    assert found["printing.service"]["Id"] == "cups.service"
    assert found["printing.service"]["ActiveState"] == "active"
    assert found["absent.service"]["LoadState"] == "not-found"


@pytest.mark.parametrize(("trigger", "questions"), [("cups.socket", 1), ("printer.socket", 2)])
def test_units_and_what_triggers_them_are_one_question_where_their_names_tell(
    root: Path, monkeypatch: pytest.MonkeyPatch, trigger: str, questions: int
) -> None:
    """Whatever the question, the answer is what systemd says of the triggers, no guess."""
    (root / "usr" / "lib" / "systemd" / "system" / trigger).write_text("[Socket]\n")
    (root / "usr" / "lib" / "systemd" / "system" / "cups.timer").write_text("[Timer]\n")
    asked: list[list[str]] = []

    def answer(argv: list[str], **_: Any) -> tuple[int, str, str]:
        names = argv[argv.index("--") + 1 :]
        asked.append(names)
        of = {"cups.service": f"TriggeredBy={trigger}", trigger: "Triggers=cups.service"}
        return 0, "\n\n".join(f"Id={name}\n{of.get(name, 'Names=x')}" for name in names), ""

    monkeypatch.setattr(units, "run", answer)
    found = units.section({"units": ["cups.service", "colord.service"]})
    assert len(asked) == questions
    assert {*found["units"]} == {"cups.service", "colord.service"}
    assert {name: one["Triggers"] for name, one in found["triggers"].items()} == {
        trigger: "cups.service"
    }


def test_links_are_found_by_listing_alone_as_deep_as_they_lie(root: Path) -> None:
    found = set(links.paths(links.FOLDERS))
    assert found == {str(path) for path in system(root).rglob("*") if path.is_symlink()}
    assert str(system(root) / "printer.target.wants" / "cups.service") in found
    assert set(links.scan()) == found
    assert list(links.paths(["/nonexistent"])) == []


def test_links_in_a_circle_end() -> None:
    assert units.canonical("no-such-unit.service") == "no-such-unit.service"


def test_what_starts_a_disabled_unit_is_what_disable_does_not_take_away(root: Path) -> None:
    top = str(system(root))
    found = {f"{top}/multi-user.target.wants/gdm3.service", f"{top}/dbus-gdm.service"}
    unit = {
        "Names": "gdm.service gdm3.service dbus-gdm.service",
        "WantedBy": "multi-user.target graphical.target",
        "RequiredBy": "kiosk.service",
    }
    bus = {"dbus-gdm.service", "other.service"}
    assert units.lasting_starters(unit, found, bus) == ["graphical.target", "kiosk.service"]
    assert units.lasting_starters(unit, set(), bus)[-1] == "D-Bus as dbus-gdm.service"


def test_some_units_are_given_back_and_held_again_while_others_stay(
    root: Path, tmp_path: Path
) -> None:
    rearm = module("undo.rearm").rearm
    before = tree(root)
    own = tmp_path / "needrestart" / "zz.conf"
    own.parent.mkdir()
    for _ in range(2):
        units.down(TODO)
        journal.put(str(own), 0o644, (os.getuid(), os.getgid()), b"x\n")
        answer = rearm(["colord.service", "cups.service", "cups.socket"], [str(own)])
        assert {"unit cups.service", "unit colord.service", str(own)} <= {*answer["restored"]}
        assert not own.exists()
        assert (root / "active" / "cups.service").exists()
        assert not (system(root) / "dbus-org.bluez.service").is_symlink(), "bluetooth stays down"
        assert not (system(root) / "colord.service").is_symlink()
        assert (system(root) / "printd.service").is_symlink(), "the alias of cups"
        assert rearm(["colord.service", "cups.service", "cups.socket"], [str(own)]) == {
            "restored": [],
            "notes": [],
        }
    assert undo()["ok"]
    assert tree(root) == before


def test_what_a_trigger_starts_is_known_also_while_it_is_masked(root: Path) -> None:
    shipped = root / "usr" / "lib" / "systemd" / "system"
    (shipped / "cups.path").write_text("[Path]\nPathExists=/var/spool/cups\n")
    (shipped / "queue.timer").write_text("[Timer]\nOnCalendar=daily\nUnit = cups.service\n")
    units.down({"stop": [], "disable": [], "mask": ["cups.path", "queue.timer", "cups.service"]})
    starts = {e["name"]: e.get("starts") for e in restore.section({})["entries"]}
    assert starts["unit cups.path"] == ["cups.service"]
    assert starts["unit queue.timer"] == ["cups.service"]
    assert starts["unit cups.service"] == []
    assert units.started_by("cups.path", {"Triggers": "other.service"}) == ["other.service"]


def test_a_held_unit_that_the_owner_changed_since_is_named(root: Path) -> None:
    units.down(TODO)
    units.systemctl("mask", "--quiet", "cups.service")
    with pytest.raises(module("run.command").Failed, match=r"unit cups\.service"):
        module("undo.rearm").rearm(["cups.service"], [])


@pytest.mark.parametrize("at", ["stop", "disable", "mask"])
def test_a_change_cut_off_within_systemctl_is_undone(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = tree(root)
    dead = False
    real, record = units.run, journal.record

    def run(argv: list[str], **words: Any) -> Any:
        nonlocal dead
        found = real(argv, **words)
        dead = dead or at in argv
        if dead:
            raise Cut
        return found

    def write(*words: Any) -> None:
        if dead:
            raise Cut
        record(*words)

    with monkeypatch.context() as patch:
        patch.setattr(units, "run", run)
        patch.setattr(journal, "record", write)
        with pytest.raises(Cut):
            units.down(TODO)
    assert tree(root) != before
    # Something of the owner's happens before anybody looks again.
    (system(root) / "later.target.wants").mkdir()
    (system(root) / "later.target.wants" / "later.service").symlink_to("/lib/later.service")
    looked = [v for _, v in restore.look(restore.everything())]
    names = [v["name"] for v in looked]
    assert len({*names}) == len(names)
    assert {v["verdict"] for v in looked} <= {"restore", "same"}
    assert not any("later" in name for name in names)
    assert undo()["ok"]
    after = tree(root)
    assert after.pop("etc/systemd/system/later.target.wants/later.service")
    assert after == before


def test_a_change_cut_off_is_completed_by_the_next_and_then_undone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(root)
    with monkeypatch.context() as patch:
        patch.setattr(links, "settle", lambda *_: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            units.down(TODO | {"mask": []})
    assert links.pending() is not None
    looked = [v for _, v in restore.look(restore.everything())]
    assert {v["verdict"] for v in looked} <= {"restore", "same"}
    units.down(TODO)
    assert links.pending() is None
    assert undo()["ok"]
    assert tree(root) == before


def test_a_failing_systemctl_says_why(root: Path) -> None:
    with pytest.raises(module("run.command").Failed, match="Failed to mask"):
        units.down({"stop": [], "disable": ["bluetooth.service"], "mask": ["/usr/no.service"]})
    assert links.pending() is None
    assert undo()["ok"], "what was done before it failed is undone"


def test_an_owners_full_copy_of_a_static_unit_is_held_by_a_drop_in_and_given_back(
    root: Path,
) -> None:
    """systemctl edit --full; systemd refuses to mask such a unit, and prepare stopped there."""
    copy = system(root) / "colord.service"
    copy.write_text("[Service]\nExecStart=/bin/sleep 1000\n")
    (root / "active" / "colord.service").touch()
    before = tree(root)
    units.down({"stop": ["colord.service"], "disable": [], "mask": ["colord.service"]})
    held = Path(f"{copy}.d") / units.DROP_IN
    assert held.read_bytes() == units.DOWN
    assert "ConditionPathExists=/nonexistent/" in held.read_text()
    assert not (root / "active" / "colord.service").exists()
    assert {v["verdict"] for _, v in restore.look(restore.everything())} == {"restore"}
    assert undo()["ok"]
    assert tree(root) == before
    assert not held.parent.exists()


def test_a_drop_in_is_let_go_with_its_unit_and_held_again(root: Path) -> None:
    copy = system(root) / "colord.service"
    copy.write_text("[Service]\nExecStart=/bin/sleep 1000\n")
    before, held = tree(root), Path(units.drop_in("colord.service"))
    for _ in range(2):
        units.down({"stop": [], "disable": [], "mask": ["colord.service"]})
        assert held.exists()
        answer = module("undo.rearm").rearm(["colord.service"], [])
        assert str(held) in answer["restored"]
        assert tree(root) == before
        assert not held.parent.exists()


def test_the_drop_in_is_known_by_one_path_on_both_sides() -> None:
    assert units.drop_in("cups.service") == services.drop_in("cups.service")
    assert units.DROP_IN == services.DROP_IN
    assert "DropInPaths" in units.PROPERTIES.split(",")


def test_a_second_change_cut_off_names_nothing_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(root)
    units.down(TODO)
    units.systemctl("enable", "--quiet", "cups.service")
    with monkeypatch.context() as patch:
        patch.setattr(links, "settle", lambda *_: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            units.down(TODO)
    names = [v["name"] for _, v in restore.look(restore.everything())]
    assert len({*names}) == len(names)
    assert undo()["ok"]
    assert tree(root) == before
