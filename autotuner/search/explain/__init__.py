"""Explanations of a layout: what limits it, what lies one step away, and what measured pairs show."""
