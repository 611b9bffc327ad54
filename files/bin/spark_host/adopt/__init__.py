"""Engines that no stack file knows: read, kept, and brought back as they were."""
