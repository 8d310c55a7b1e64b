"""A dataset as a value, and its single samples for torch's DataLoader."""
