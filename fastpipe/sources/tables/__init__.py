"""Tables of images: CSV, text, JSON lines, Parquet -> rows -> a listing."""
