"""Search: the layouts that there are, the best of them by prediction, and what trials of them say."""
