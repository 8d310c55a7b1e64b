"""The bytes of one image file -> the JPEG that a shard holds."""
