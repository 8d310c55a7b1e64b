"""A loader's figures -> a line in a terminal, metrics for Prometheus."""
