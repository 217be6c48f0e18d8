"""A trial as every rank runs it: checked, built, repeated and reported."""
