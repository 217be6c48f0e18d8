"""Predictions of the time and memory of layouts, by closed forms over columns of layouts."""
