"""Starts ranks: a fork server forks them, or torchrun starts them."""
