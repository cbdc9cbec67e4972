"""Traces: reading what the recorder wrote, converting it to Parquet, and handling the files."""
