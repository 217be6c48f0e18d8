"""Work of one micro-batch in one layer, and in the embedding and the output of the model."""
