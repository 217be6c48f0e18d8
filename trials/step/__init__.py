"""The optimizer step: forward and backward passes, gradients, the update, and the data."""
