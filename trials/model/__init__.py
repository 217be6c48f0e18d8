"""The decoder in plain PyTorch; it knows no ranks, and is handed what differs between them."""
