"""Choose how a model is trained: predict every legal layout, measure a few, and rank all of them by MFU."""
