"""Measurements of a step, and of the machine under it."""
