"""In these tests Ray and buckets are in this process; those of clusters and servers are in tests/long/ray."""

from support.ray.tasks_here import tasks_here  # noqa: F401 (a fixture)
from support.remote.memory_bucket import bucket  # noqa: F401 (a fixture)
