"""Maps one prompt over many rows: each row is asked in its own turn, and no answer is paid for twice.

All rows share one budget and one rate limit.
"""
