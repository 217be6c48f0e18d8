"""Fronts as numbers: what no other beats in everything, how much that is, and what another may add."""
