"""Reads shell scripts without running them: assignments, arrays, conditions, and the commands that come of them."""
