"""Wire time of collectives over groups of ranks, and what of it stays exposed."""
