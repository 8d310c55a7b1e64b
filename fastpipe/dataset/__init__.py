"""A dataset as a value, and its single samples for torch's DataLoader; its files are in format/."""
