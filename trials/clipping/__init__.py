"""Clipping of gradients before or behind their reduction, and how much of that a backward pass hides."""
