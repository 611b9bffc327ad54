"""What every command shares: programs, processes, originals, leases."""
