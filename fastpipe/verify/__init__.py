"""A packed dataset -> what is wrong with it, to the sample; and mended from its source."""
