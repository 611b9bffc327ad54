"""Command line of one rank."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from . import release


@dataclass(frozen=True)
class Options:
    """Settings of one rank; times in seconds."""

    rank: int
    nnodes: int
    master_addr: str
    master_port: int
    host: str
    port: int
    model_path: Path
    served_model_name: str
    bind_ip: str
    load_seconds: float
    faults_file: Path

    @property
    def is_head(self) -> bool:
        """True for rank 0, which serves the API and the rendezvous."""
        return self.rank == 0


def parse(argv: list[str]) -> Options:
    """Options from arguments; exits with status 2 and a usage line on a wrong one."""
    parser = argparse.ArgumentParser(prog="lab-engine", allow_abbrev=False)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nnodes", type=int, required=True)
    parser.add_argument("--master-addr", required=True, help="fabric address of rank 0")
    parser.add_argument("--master-port", type=int, default=25000)
    parser.add_argument("--host", default="0.0.0.0", help="address of the API, rank 0 only")  # noqa: S104
    parser.add_argument("--port", type=int, default=8888)
    parser.add_argument("--model-path", type=Path, required=True)
    parser.add_argument("--served-model-name", default=release.DEFAULT_MODEL_NAME)
    parser.add_argument("--bind-ip", required=True, help="fabric address of this rank")
    parser.add_argument("--load-seconds", type=float, default=8.0, help="spread over the shards")
    parser.add_argument("--faults-file", type=Path, default=Path("/etc/lab-engine/faults"))
    options = Options(**vars(parser.parse_args(argv)))
    if not 0 <= options.rank < options.nnodes:
        parser.error(f"--rank {options.rank} found, 0 to {options.nnodes - 1} expected")
    return options
