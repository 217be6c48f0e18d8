"""Work of one micro-batch on one layer, and on the model's two ends."""
