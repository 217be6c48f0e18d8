"""Choose how a model is trained: every legal layout predicted, a few tried for real, all ranked by MFU."""
