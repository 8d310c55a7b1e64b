"""Packed pictures -> shards, index and dataset.json in the destination, each whole or not there."""
