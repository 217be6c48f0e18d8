"""Optimizer studies: what is searched once a layout is chosen, and what came of it."""
