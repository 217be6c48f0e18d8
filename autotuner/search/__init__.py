"""Which layouts there are, which to try next, and the worker that tries them."""
