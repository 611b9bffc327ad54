"""What the guests reach on this machine: the registry of images and a Hub of models."""
