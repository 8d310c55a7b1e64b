"""A dataset that is packed -> its next version, with more samples or fewer."""
