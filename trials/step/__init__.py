"""One optimizer step: passes, gradients, update, data."""
