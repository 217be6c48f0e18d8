"""Faults at random moments, and what must hold after each: ``python -m tests.chaos``."""
