"""files/host.yaml: what a host is brought to, whatever stack it serves."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

PATH = Path(__file__).parents[1] / "files" / "host.yaml"


class HostSettings(BaseModel):
    """Units by the names that packages give them; sysctl: setting -> value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    boot_target: str
    governor: str
    governor_owners: tuple[str, ...]
    services_down: tuple[str, ...]
    sysctl: dict[str, int | str]
    kernels_refused: tuple[str, ...]
    user_units_down: tuple[str, ...]
    maintenance_held: tuple[str, ...]


@cache
def shipped() -> HostSettings:
    """As this project ships it; raises ValidationError when somebody broke it."""
    return HostSettings.model_validate(yaml.safe_load(PATH.read_text()))
