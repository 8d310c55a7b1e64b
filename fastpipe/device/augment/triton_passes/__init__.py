"""Neighbouring modules that change each pixel by itself -> one pass over the images on a GPU."""
