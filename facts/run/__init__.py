"""What every fact is made of."""
