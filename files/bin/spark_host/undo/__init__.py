"""Everything given back as it was found."""
