"""A pack in steps that run anywhere: as commands, or as tasks of a Ray cluster."""
