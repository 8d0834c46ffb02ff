"""One prompt over many rows: each is a turn of its own, paid once, within one budget and at one pace."""
