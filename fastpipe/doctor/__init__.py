"""This machine, and a packed dataset -> a list of checks: the result, a verdict, and what to do."""

from fastpipe.doctor.check import Check, Verdict
from fastpipe.doctor.examine import examine

__all__ = ["Check", "Verdict", "examine"]
