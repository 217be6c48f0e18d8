"""Layouts: the options that make one, their values, and the space a sweep searches."""
