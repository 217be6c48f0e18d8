"""Measurements and fits; nothing here is imported by the program."""
