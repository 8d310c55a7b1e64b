"""A folder or a bucket, behind one interface: see store.py."""
