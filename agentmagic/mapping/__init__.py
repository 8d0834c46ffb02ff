"""Maps one prompt over many rows: each row is asked in its own turn. All rows share one budget and one rate limit."""
