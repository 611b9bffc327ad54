"""The lab's stacks: engine images, model files, lock files, and what the owners' stacks lie in."""
