"""What the host boots into and which of its units may run."""
