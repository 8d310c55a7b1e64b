"""Folders of photos, and tars, as they lie -> an index: loading without packing."""
