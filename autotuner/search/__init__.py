"""Search: finds the legal layouts and the best of them by prediction, and evaluates trials of them."""
