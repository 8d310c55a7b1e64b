"""A listing -> a dataset: the destination is checked, shards are made and published."""
