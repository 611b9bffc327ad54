"""Probes over HTTP that a served model must pass."""
