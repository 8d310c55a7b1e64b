"""Batches in host memory -> batches on a device."""
