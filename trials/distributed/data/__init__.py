"""Gradients, optimizer states and parameters over data-parallel ranks."""
