"""Two real hosts under QEMU on this machine."""
