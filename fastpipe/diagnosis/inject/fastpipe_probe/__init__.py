"""A DataLoader that runs -> figures in a folder.

Imports nothing of fastpipe: the watched program may not have it.
"""
