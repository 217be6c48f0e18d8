"""Explanations of a layout: what limits it, which neighbouring layouts are better, and what pairs of trials show."""
