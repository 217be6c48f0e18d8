"""Starts ranks: forked by a zygote, or under torchrun."""
