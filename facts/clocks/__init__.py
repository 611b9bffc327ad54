"""CPU and GPU clocks, and whatever else would set them."""
