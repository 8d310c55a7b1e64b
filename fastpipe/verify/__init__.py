"""A packed dataset -> all damage in it, down to the sample; and the dataset, repaired from its source."""
