"""Splits the decoder over ranks, each kind of parallelism in modules of its own."""
