"""Turns a folder of photos into sequential tar shards with a numpy index."""
