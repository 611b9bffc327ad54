"""Engine stacks: their definition, their lock and what each rank runs."""
