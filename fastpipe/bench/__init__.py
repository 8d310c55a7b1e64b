"""Measures loaders on a packed dataset, each in a process of its own."""
