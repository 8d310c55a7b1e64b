"""Folders of photos and tars as they lie -> an index, and PNGs or JPEGs of other formats: loading without packing."""
