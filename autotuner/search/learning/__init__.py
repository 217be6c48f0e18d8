"""What stored trials teach about later predictions and searches."""
