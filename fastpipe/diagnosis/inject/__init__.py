"""What a watched training program is given on its PYTHONPATH: `sitecustomize` and the package `fastpipe_probe`."""
