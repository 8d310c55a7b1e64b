"""Sources of a shard -> its tar, its records, its columns; and what strings shards together."""
