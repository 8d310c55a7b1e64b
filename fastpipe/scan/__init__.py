"""Folders of photos and tars as they lie -> an index of them, and JPEGs of what is none: loading without packing."""
