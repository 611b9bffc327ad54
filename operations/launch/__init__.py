"""From what runs now to an answer of the wanted stack."""
