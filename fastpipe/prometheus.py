"""`fastpipe.prometheus.LoaderCollector`: the public name of the class in monitoring/prometheus.py."""

from fastpipe.monitoring.prometheus import LoaderCollector

__all__ = ["LoaderCollector"]
