"""Wire time of collectives over groups of ranks, and the exposed part of it."""
