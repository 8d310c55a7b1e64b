"""In these tests a bucket is in memory, where nothing else is said; those of servers are in tests/long/packing."""

from support.remote.memory_bucket import bucket  # noqa: F401 (a fixture)
