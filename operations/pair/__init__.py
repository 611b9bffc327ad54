"""The ranks as one unit: what each shall be, and whether they are."""
