"""What every room of the lab builds on: its folders, its one error, this machine's programs."""
