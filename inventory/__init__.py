"""The owner's file, its schema, and the pyinfra inventories made from it."""
