"""Which layouts can run, and why the others cannot."""
