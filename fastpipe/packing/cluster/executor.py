"""What long work runs on: threads of this process, or tasks of a Ray cluster."""

from __future__ import annotations

from fastpipe.errors import ConfigError
from fastpipe.errors.checks import choice

THREADS, RAY = "threads", "ray"


def on_ray(executor: str, address: str | None) -> bool:
    """Whether an `executor` is a Ray cluster; ConfigError: it is unknown, or an address needs one."""
    if choice("--on", executor, (THREADS, RAY)) == RAY:
        return True
    if address is not None:
        raise ConfigError(f'--address {address}: there is a cluster only with --on ray (executor="ray")')
    return False
