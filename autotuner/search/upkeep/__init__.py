"""Retunes and performance regression gates as state machines: when they begin, and what their sweeps said."""
