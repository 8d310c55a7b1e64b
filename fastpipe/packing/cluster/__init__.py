"""Work on several machines: Ray's tasks, and nothing of our own beside them."""
