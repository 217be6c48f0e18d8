"""Retunes and performance regression gates as state machines: when they start, and the results of their sweeps."""
