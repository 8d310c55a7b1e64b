"""Converted samples in any order -> sorted files on disk -> the same samples in packing order."""
