"""Batches of sequences that differ in length: drawn, dealt to data-parallel ranks, and what dealing saves."""
