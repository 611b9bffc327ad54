"""inventory/lab.py with limits of the clocks in the owner's file."""

from inventory import lab
from inventory.hosts import groups
from inventory.schema import Clocks

_cluster = lab._cluster.model_copy(update={"clocks": Clocks(cpu_max_mhz=3300, gpu_mhz=(300, 2450))})
_groups = groups(_cluster)

head = _groups.head
workers = _groups.workers
