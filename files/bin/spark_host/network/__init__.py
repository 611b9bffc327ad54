"""The links between the ranks, and the ways to the hosts."""
