"""The bytes of a packed dataset, and what reads and writes them (docs/explanation/format.md)."""
