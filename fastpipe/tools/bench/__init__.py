"""Measures loaders on a packed dataset, each in a separate process."""
