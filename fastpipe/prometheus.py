"""`fastpipe.prometheus.LoaderCollector`: the public name of what monitoring/prometheus.py has."""

from fastpipe.monitoring.prometheus import LoaderCollector

__all__ = ["LoaderCollector"]
