"""A pack in tasks of a Ray cluster: sources are listed and shards are made by tasks, and published
by the driver.
"""
