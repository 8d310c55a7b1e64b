"""Folders of classes, splits and pairs -> a listing, and the doubts about them."""
