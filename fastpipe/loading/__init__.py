"""A packed dataset -> the batches that a training loop iterates."""
