"""Run one thing on a host from inside an operation, with an answer or one sentence of reason."""

from __future__ import annotations

import contextlib
import json
import shlex
from typing import Any, cast

import gevent
from paramiko import SSHException
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from facts.run.language import PLAIN, plain
from facts.run.program import END, INSTALLED

# How long past a command's own limit the link may stay silent before the host counts as gone.
LINK_SLACK_S = 15


class RemoteError(Exception):
    """One sentence: which host, what was asked, what was found."""


def spark_host(*arguments: str) -> str:
    """The command line of the on-host program, quoted."""
    return shlex.join(["python3", "-I", INSTALLED, *arguments])


def run(host: Host, command: str, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Standard output of a shell command on the host, run as the inventory says (sudo or not).

    Raises RemoteError when it fails, when it takes longer than timeout_s, or when the host is gone.
    """
    arguments, _ = pop_global_arguments(host.state, host, {})
    connector = {k: v for k, v in arguments.items() if k in CONNECTOR_ARGUMENT_KEYS}
    if stdin is not None:
        connector["_stdin"] = stdin
    try:
        with gevent.Timeout(timeout_s + LINK_SLACK_S, exception=TimeoutError):
            if not host.connected:
                host.connect(show_errors=False, raise_exceptions=True)
            plain(host)
            bounded = f"{PLAIN} timeout --kill-after=5 {timeout_s:.0f} sh -c {shlex.quote(command)}"
            good, output = host.run_shell_command(StringCommand(bounded), **connector)
    except TimeoutError:
        _hang_up(host)
        raise RemoteError(
            f"{host.name}: no answer within {timeout_s + LINK_SLACK_S:.0f} s"
        ) from None
    except (OSError, EOFError, SSHException, ConnectError) as error:
        _hang_up(host)
        raise RemoteError(f"{host.name}: the connection is gone ({error})") from None
    if not good:
        said = " ".join(output.stderr_lines or output.stdout_lines).strip()
        raise RemoteError(f"{host.name}: {said or 'the command failed without a word'}")
    return output.stdout


def whisper(host: Host, *arguments: str) -> dict[str, Any] | None:
    """One answer of spark-host, None for whatever reason; never opens or ends a link, since a
    stage's own command may be using it."""
    if not host.connected:
        return None
    arguments_here, _ = pop_global_arguments(host.state, host, {})
    connector = {k: v for k, v in arguments_here.items() if k in CONNECTOR_ARGUMENT_KEYS}
    command = StringCommand(spark_host(*arguments))
    with contextlib.suppress(Exception, gevent.Timeout), gevent.Timeout(LINK_SLACK_S):
        good, output = host.run_shell_command(command, **connector)
        lines = output.stdout.splitlines()
        if good and lines and lines[-1] == END:
            return cast(dict[str, Any], json.loads(lines[-2]))
    return None


def _hang_up(host: Host) -> None:
    """Forget a link that broke, so that the next command opens a new one: pyinfra keeps taking a
    dead transport for a connection, and a host would stay lost after one dropped link."""
    with contextlib.suppress(Exception, gevent.Timeout), gevent.Timeout(5):
        host.disconnect()
    host.connected = False


def call(host: Host, *arguments: str, stdin: Any = None, timeout_s: float = 60) -> dict[str, Any]:
    """One answer of spark-host on the host; stdin goes as JSON unless it is text.

    Raises RemoteError also when the answer says that it is not ok, with its message.
    """
    text = stdin if stdin is None or isinstance(stdin, str) else json.dumps(stdin)
    command = spark_host(*arguments) + " || true"
    lines = run(host, command, text, timeout_s).splitlines()
    what = f"{host.name}: {' '.join(arguments[:2])}"
    if not lines or lines[-1] != END:
        raise RemoteError(f"{what}: the answer is cut short: {' '.join(lines)[-200:]!r}")
    try:
        answer = cast(dict[str, Any], json.loads(lines[-2]))
    except RecursionError:
        raise RemoteError(f"{what}: odd answer, nested too deeply") from None
    if answer.get("ok") is False and answer.get("message"):
        raise RemoteError(f"{what}: {answer['message']}")
    return answer
