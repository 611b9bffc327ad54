"""What a host's own programs say, in the one language that is read here.

sudo is asked for by pyinfra, outside of every command, and whether it wants a password is known by
what it says. So each connection asks for LC_ALL, which sshd takes from Debian's and Ubuntu's first
setting on (AcceptEnv LANG LC_*); @local has this process's own. C and not C.UTF-8: gettext obeys
LANGUAGE, which a host may have set, in any locale but that one.
"""

from __future__ import annotations

import os
from functools import partial

from pyinfra.api.host import Host
from pyinfra.connectors.local import LocalConnector

LANGUAGE = {"LC_ALL": "C"}
# For a command itself, whatever sudo has let through.
PLAIN = "env -u LANGUAGE LC_ALL=C.UTF-8"


def plain(host: Host) -> None:
    """Have all that this connection runs from now on say it in that language."""
    if isinstance(host.connector, LocalConnector):
        os.environ.update(LANGUAGE)
    client = getattr(host.connector, "client", None)
    if client is not None and not isinstance(client.exec_command, partial):
        client.exec_command = partial(client.exec_command, environment=LANGUAGE)
