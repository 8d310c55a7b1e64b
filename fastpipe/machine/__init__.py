"""This machine: its CPUs, its limits, and which resources are short."""
