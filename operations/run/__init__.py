"""What every operation of a run shares: the run itself, its hosts, its words."""
