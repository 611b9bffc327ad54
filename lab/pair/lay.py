"""An owner's stack into the guests: its files, and the wait for its first completion."""

from __future__ import annotations

import io
import tarfile
import time

import httpx

from lab.common.errors import LabError
from lab.common.paths import HOSTS, LabHome
from lab.guests import ssh
from lab.guests.qemu import API_PORT
from lab.stacks.guest_file import GuestFile

ANSWER_S = 600.0  # the old stack's first answer; 30 s seen on an idle machine


def install(home: LabHome, host: str, files: list[GuestFile]) -> None:
    """Write files into a guest, as root's."""
    if not files:
        return
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in files:
            content = file.text.encode()
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(content), file.mode, int(time.time())
            entry.uname, entry.gname = "root", file.group
            archive.addfile(entry, io.BytesIO(content))
    ssh.run(home, host, "sudo tar -xpf - -C / --no-overwrite-dir", data=buffer.getvalue())


def wait_answer(home: LabHome, model: str, container: str) -> None:
    """Wait for a completion of a model; raises LabError with the end of the head's log."""
    url = f"http://127.0.0.1:{API_PORT[HOSTS[0]]}/v1/chat/completions"
    question = {"model": model, "messages": [{"role": "user", "content": "What is 17*23?"}]}
    deadline = time.monotonic() + ANSWER_S
    last = "nothing"
    while time.monotonic() < deadline:
        try:
            answer = httpx.post(url, json=question, timeout=30, trust_env=False)
            if answer.is_success and answer.json()["choices"][0]["message"]["content"]:
                return
            last = f"HTTP {answer.status_code}: {answer.text[:200]}"
        except httpx.HTTPError as error:
            last = type(error).__name__
        time.sleep(1)
    logs = ssh.run(home, HOSTS[0], f"sudo docker logs --tail 5 {container} 2>&1")
    raise LabError(
        f"{model} gave no completion in {ANSWER_S:.0f} s (last: {last}); its head says:\n{logs}"
    )
