"""Both guests as one pair: the lab's verbs, what it remembers, its snapshots."""
