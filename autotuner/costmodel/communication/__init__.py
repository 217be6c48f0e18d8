"""Wire time of collectives over groups of ranks, and the part of it that stays exposed."""
