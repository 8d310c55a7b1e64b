"""A pack in steps that run anywhere: list, convert, plan, assemble; between them there are only files of a spool."""
