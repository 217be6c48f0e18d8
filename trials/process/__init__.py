"""How ranks start: forked by a zygote, or under torchrun."""
