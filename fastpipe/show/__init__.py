"""A packed dataset -> figures and pictures of it for people to look at."""
