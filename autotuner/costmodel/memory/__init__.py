"""Peak memory of a rank: weights, activations and buffers."""
