"""Maps one prompt over many rows. Each row is a turn and is paid for once; all rows share a budget and a pace."""
