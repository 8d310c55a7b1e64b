"""This machine: its CPUs, its limits, what it is short of."""
