"""Packed images -> shards, index and dataset.json in the destination; each file is complete or does not exist."""
