"""What a trace says of a program's heap: analysed over Parquet, merged, shown and advised on."""
