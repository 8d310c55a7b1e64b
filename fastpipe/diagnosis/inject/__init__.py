"""A watched program has this folder, with `sitecustomize` and the probe, on its PYTHONPATH."""
