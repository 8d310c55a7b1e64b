"""Tars of samples, as WebDataset reads them -> a listing."""
