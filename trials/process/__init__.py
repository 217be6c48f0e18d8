"""Starts ranks: a zygote forks them, or torchrun starts them."""
