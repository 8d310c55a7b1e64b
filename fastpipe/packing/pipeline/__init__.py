"""Sources -> converted samples, in packing order, worked out ahead by threads."""
