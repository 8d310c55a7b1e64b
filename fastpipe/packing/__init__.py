"""Turns photos, in a folder or in tars, into sequential tar shards with a numpy index."""
