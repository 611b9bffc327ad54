"""Say how the hosts differ from the owner's file and from each other, side by side on one page.

READ-ONLY. One exec a host, and one completion asked of a set of ranks that looks right; with
`--data bandwidth=yes` also five seconds of ib_write_bw over each RDMA device of the head.
Exit status 0 when all is ok (or unsupported), 1 when anything drifted or could not be read; the
JSON whose path is printed tells which.
"""

from pyinfra.context import host

from deploys.steps.begin import begin
from operations.look import verify

verify.look(begin("verify", host.data.stack, extra=("machine", "leftovers", "holders")))
