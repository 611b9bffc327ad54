"""The guests as processes: QEMU, its monitor, its acceleration, SSH into them."""
