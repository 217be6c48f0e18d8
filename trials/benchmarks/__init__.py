"""Microbenchmarks of this machine: matrix products, memory, attention, collectives."""
