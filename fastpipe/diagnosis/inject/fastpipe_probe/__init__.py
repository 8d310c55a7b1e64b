"""A DataLoader that runs -> figures in a folder. Imports nothing of fastpipe: the program watched may have none."""
