"""Trials of registered trainers: how they are started, and what their reports and logs say."""
