"""A pack in tasks of a Ray cluster. The driver publishes what the tasks have made."""
