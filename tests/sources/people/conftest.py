"""In these tests Ray is in this process."""

from support.ray.tasks_here import tasks_here  # noqa: F401 (a fixture)
