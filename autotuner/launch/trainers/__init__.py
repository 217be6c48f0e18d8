"""Trials of registered trainers: the commands that start them, and the readers of their reports and logs."""
