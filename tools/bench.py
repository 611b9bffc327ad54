"""How long a no-change `prepare` of the lab takes, beside one cold read of the same state by ssh.

    python tools/bench.py [ROUNDS]     the lab must be up and at rest; ends with status 1 above 2.0

Both in one run, one after the other, ROUNDS (5) times; the table has the medians. `prepare` is the
whole command, from its start to its end on all hosts. The read is one `ssh HOST sh` for each host,
both at once, without a shared connection; its script brings along the program that prepare uses.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from deploys.steps.begin import known_stacks
from facts.run.program import END, program_archive
from inventory.schema import load
from lab.common.paths import HOSTS, lab_home
from operations.look.parts import ask_of

REPOSITORY = Path(__file__).parents[1]
REPORT = REPOSITORY / "reports" / "bench.json"
ROUNDS = 5
LIMIT = 2.0
COLD = ("-o", "ControlMaster=no", "-o", "ControlPath=none")


def script() -> str:
    """Reads one host's state: the program in base64, then the question that prepare asks."""
    home = lab_home()
    locks = {"ssh.config_file": str(home.ssh_config), "lock_dir": str(home.root / "locks")}
    cluster = load(REPOSITORY / "inventory" / "lab.yaml", locks)
    known = known_stacks(cluster.lock_dir)
    stack = next(one for one in known if one.name == cluster.stack)
    ask = shlex.quote(json.dumps(vars(ask_of(cluster, stack, known))))
    return (
        f"t=$(mktemp)\nbase64 -d > $t <<'END'\n{program_archive()}\nEND\n"
        f"sudo python3 -I $t snapshot {ask} < /dev/null\nrm $t\n"
    )


def read_cold(host: str, text: str) -> float:
    """Seconds of one plain ssh that reads the host; raises RuntimeError when it did not."""
    line = ["ssh", "-F", str(lab_home().ssh_config), *COLD, host, "sh"]
    began = time.monotonic()
    done = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode or not done.stdout.endswith(END + "\n"):
        raise RuntimeError(f"{host}: the read ended with status {done.returncode}: {done.stderr}")
    return seconds


def read_all(text: str) -> float:
    """Seconds until both hosts have been read, each by an ssh of its own, both at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(HOSTS)) as pool:
        list(pool.map(lambda host: read_cold(host, text), HOSTS))
    return time.monotonic() - began


def prepare() -> float:
    """Seconds of a whole `prepare`; raises RuntimeError when it changed something or failed."""
    line = [sys.executable, "-m", "pyinfra", "inventory/lab.py", "deploys/prepare.py", "-y"]
    began = time.monotonic()
    done = subprocess.run(
        line, cwd=REPOSITORY, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    seconds = time.monotonic() - began
    text = done.stdout + done.stderr
    if done.returncode or "] Success" in text:
        raise RuntimeError(f"prepare failed, or changed something; run it once before:\n{text}")
    return seconds


def main(argv: list[str]) -> int:
    rounds = int(argv[1]) if argv[1:] else ROUNDS
    text = script()
    seen: dict[str, list[float]] = {"cold read": [], "no-change prepare": []}
    for _ in range(rounds):
        seen["cold read"].append(read_all(text))
        seen["no-change prepare"].append(prepare())
    medians = {name: statistics.median(times) for name, times in seen.items()}
    ratio = medians["no-change prepare"] / medians["cold read"]
    print(f"{'':20}{'median':>9}{'least':>9}{'most':>9}   seconds, {rounds} rounds")
    for name, times in seen.items():
        print(f"{name:20}{medians[name]:9.2f}{min(times):9.2f}{max(times):9.2f}")
    print(f"{'ratio':20}{ratio:9.2f}   at most {LIMIT} wanted")
    REPORT.parent.mkdir(exist_ok=True)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    report = {"ended": began, "seconds": seen, "medians": medians, "ratio": ratio, "limit": LIMIT}
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"report: {REPORT.relative_to(REPOSITORY)}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
