"""The image that both guests boot: packages, kernel module, files, disk."""
