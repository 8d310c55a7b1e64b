"""A listing -> a dataset: the destination is looked at, shards are made in threads, and published."""
