"""Makes a photo-like image folder for trying fastpipe without a download."""
