"""Changes to a host, one module per subsystem; same names as in facts."""
