"""The stack that no file of this project knows, as the pair of seed 002 had its own.

Its image lies on each host without a registry; the head is a compose project with an env file, the
worker a ``docker run`` that the head's script sends over SSH; a cron line watches over both.
"""

from __future__ import annotations

from pathlib import Path

from lab.stacks.guest_file import GuestFile

IMAGE = "vllm-node:0731"
DIRECTORY = "/home/nvidia/night-lane"
SCRIPT = f"{DIRECTORY}/start-lane.sh"
CONTAINERS = ("night-lane-vllm-1", "lane-worker")  # rank order
MODEL = "ds4-flash"
WATCHDOG = "/usr/local/bin/lane-guard.sh"
CRONTAB = "/var/spool/cron/crontabs/root"


def head_files() -> list[GuestFile]:
    """Compose file, env file, start script and watchdog; all but the cron line."""
    return [
        GuestFile(f"{DIRECTORY}/docker-compose.lane.yml", _text("docker-compose.lane.yml"), 0o644),
        GuestFile(f"{DIRECTORY}/.env.lane", _text("env.lane"), 0o600),
        GuestFile(SCRIPT, _text("start-lane.sh"), 0o755),
        GuestFile(WATCHDOG, _text("lane-guard.sh"), 0o755),
    ]


def crontab() -> GuestFile:
    """Root's crontab with the watchdog's line."""
    # cron ignores a crontab with another mode or owner than `crontab` itself gives it.
    return GuestFile(CRONTAB, _text("root.crontab"), 0o600, group="crontab")


def program() -> GuestFile:
    """The program that the image is given, beside where it is made."""
    return GuestFile("/var/tmp/vllm-node/vllm", _text("vllm"), 0o755)  # noqa: S108 - a guest's


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text()
