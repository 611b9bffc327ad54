"""The stack that ran before: a compose project, its environment, a watchdog and its cron line."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lab.stacks.guest_file import GuestFile

PROJECT = "dsf-lab"
DIRECTORY = "/opt/dsf-lab"
CONTAINER = "dsf-lab-engine-1"
WATCHDOG = "/usr/local/bin/spark1-inference-ready.sh"
CRONTAB = "/var/spool/cron/crontabs/root"


def files(image: str, rank: int, head_ip: str, fabric_ip: str) -> list[GuestFile]:
    """The old stack's files for one guest; the watchdog and its cron line only on rank 0.

    + image: reference with digest, ``10.0.2.100:5000/lab-engine-old@sha256:...``
    + head_ip, fabric_ip: fabric addresses of rank 0 and of this rank, without a prefix
    """
    env = _render("env.j2", image=image, rank=rank, head_ip=head_ip, fabric_ip=fabric_ip)
    found = [
        GuestFile(f"{DIRECTORY}/compose.yaml", _text("compose.yaml"), 0o644),
        GuestFile(f"{DIRECTORY}/.env", env, 0o644),
    ]
    if rank == 0:
        found += [
            GuestFile(WATCHDOG, _text("spark1-inference-ready.sh"), 0o755),
            # cron ignores a crontab with another mode or owner than `crontab` itself gives it.
            GuestFile(CRONTAB, _text("root.crontab"), 0o600, group="crontab"),
        ]
    return found


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


def _render(name: str, **values: object) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - an env file, not HTML
    )
    return environment.get_template(name).render(**values)
