"""What this build calls itself; ``lab/oci.py`` writes another text here for each image."""

VERSION = "0+source"
DEFAULT_MODEL_NAME = "lab-model"
