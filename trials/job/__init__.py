"""A trial as every rank runs it: admitted, built, stepped, reported."""
