"""Batches of sequences that differ in length, in anybody's trainer: dealt to ranks, padded or packed, judged evenly."""
