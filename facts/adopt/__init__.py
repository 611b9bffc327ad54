"""Engines that no stack file knows, as far as their hosts say what they are."""
