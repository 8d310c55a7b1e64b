"""A packed dataset -> single samples, for torch's DataLoader."""
