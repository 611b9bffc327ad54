"""What the lab remembers between its verbs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from lab.common.paths import HOSTS, LabHome


def _all_plugged() -> dict[str, dict[str, bool]]:
    return {host: {"1": True, "2": True} for host in HOSTS}


@dataclass
class Snapshot:
    """A moment of both guests.

    + key: hash of what it depends on; with another key it cannot be resumed
    + cables: host -> cable -> plugged, at that moment
    """

    key: str
    cables: dict[str, dict[str, bool]] = field(default_factory=_all_plugged)


@dataclass
class State:
    """The pair as it was made.

    + image: id of the image below the disks, empty before the first `up`
    + accel: kvm or tcg
    + cables: host -> cable -> plugged
    + snapshots: by name
    """

    image: str = ""
    accel: str = ""
    cables: dict[str, dict[str, bool]] = field(default_factory=_all_plugged)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)


def load(home: LabHome) -> State:
    """Read the state; an empty one before the first `up`."""
    try:
        raw = json.loads(home.state_file.read_text())
    except FileNotFoundError:
        return State()
    raw["snapshots"] = {name: Snapshot(**s) for name, s in raw["snapshots"].items()}
    return State(**raw)


def save(home: LabHome, state: State) -> None:
    """Write the state, replacing it at once."""
    draft = home.state_file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(state), indent=1) + "\n")
    draft.replace(home.state_file)
