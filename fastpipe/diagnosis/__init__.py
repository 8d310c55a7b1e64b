"""A user's own DataLoader, or training script -> why it is slow or stuck, and which line to change."""

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.report import Diagnosis
from fastpipe.diagnosis.run import diagnose

__all__ = ["Diagnosis", "Finding", "Severity", "diagnose"]
