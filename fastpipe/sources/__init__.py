"""A folder or tars -> the list of their images, and the bytes of each."""
