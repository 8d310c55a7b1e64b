"""A packed dataset -> what is wrong with it; and the same dataset, repaired."""
