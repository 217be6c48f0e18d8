"""A layout in the words of a trainer, and a trainer's configuration as a layout; a file per target, both directions."""
