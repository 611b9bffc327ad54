"""Images and model files, by digest and SHA-256."""
