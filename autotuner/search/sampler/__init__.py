"""The Optuna sampler over a table of legal layouts, and the beliefs behind its choice."""
