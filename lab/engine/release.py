"""What this build calls itself; ``lab/stacks/oci_layer.py`` writes another for each image."""

VERSION = "0+source"
DEFAULT_MODEL_NAME = "lab-model"
