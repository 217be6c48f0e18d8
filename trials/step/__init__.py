"""The optimizer step: passes, gradients, update, data."""
