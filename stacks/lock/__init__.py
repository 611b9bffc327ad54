"""Write the lock of a stack from the Hub, the image's registry, or a full read on the hosts."""
