"""A packed dataset -> figures and images of it for people to look at."""
