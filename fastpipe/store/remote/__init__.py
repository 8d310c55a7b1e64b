"""A dataset in a bucket or on a web server -> its bytes in local files, as the plan needs them."""
