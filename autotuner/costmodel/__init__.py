"""Predictions of the step time and memory of layouts, by closed formulas over columns of layouts."""
