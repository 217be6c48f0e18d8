"""Time and memory of a layout from closed forms, computed over columns of layouts at once."""
