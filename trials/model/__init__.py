"""The decoder in plain PyTorch. It knows nothing of ranks; functions that differ between ranks are passed to it."""
