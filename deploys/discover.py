"""Print a filled owner's file (sparks.yaml) for the hosts given, the head first.

    pyinfra spark1,spark2 deploys/discover.py > inventory/sparks.yaml

READ-ONLY. One exec a host, with sudo unless the login is root. Standard output has the file alone.
"""

from pyinfra.context import host

from deploys.steps.begin import known_stacks
from operations.look import discover

discover.look(host.inventory.get_host(host.name), known_stacks(None))
