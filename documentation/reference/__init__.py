"""Generates the pages of docs/reference from the code: ``make reference`` writes them, a test compares them."""
