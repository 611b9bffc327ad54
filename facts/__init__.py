"""Read-only views of a host, one module per subsystem."""
