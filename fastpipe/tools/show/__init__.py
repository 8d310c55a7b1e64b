"""A dataset or a loader -> figures and pictures for people."""
