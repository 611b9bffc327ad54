"""What could start an engine unasked."""
