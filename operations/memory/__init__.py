"""Who holds memory, who kills for it, which kernel settings bear on it."""
