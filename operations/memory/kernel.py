"""A kernel whose memory cannot be registered for RDMA: nothing is changed, a launch is refused."""

from __future__ import annotations

from collections.abc import Iterator

from facts.memory.memory import Memory
from facts.systemd.boot import Boot
from operations.run.findings import Finding, Look, Wanted, aside


def assess(look: Look) -> Iterator[Finding]:
    """More free than there is (CmaFree, CmaTotal) is the sign, and kho=off takes it away. With it a
    kernel that is known for the fault is a drift; of another one it is only said."""
    line = Wanted("host", "kernel", "lets RDMA have its memory")
    boot, memory = look.state.boot, look.state.memory
    if not isinstance(boot, Boot) or not isinstance(memory, Memory):
        yield line.unread(str(memory if isinstance(boot, Boot) else boot))
        return
    if memory.cma_free_mib <= memory.cma_mib:
        yield line.judged(boot.kernel, True)
        return
    seen = f"{boot.kernel}, CmaFree {memory.cma_free_mib} of CmaTotal {memory.cma_mib} MiB"
    listed = boot.kernel in look.settings.kernels_refused
    said = [
        f"kernel {seen}: NCCL may end in ibv_reg_mr, Cannot allocate memory; boot the kernel "
        "before it, or add kho=off to its command line where /sys/kernel/kexec_crash_size is 0"
    ]
    yield line.judged(seen, not listed, look.named(said, listed and look.launches))
    yield aside("advice", look.named(said, look.launches))
