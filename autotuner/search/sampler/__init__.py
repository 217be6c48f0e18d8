"""The Optuna sampler over a table of legal layouts, the beliefs behind its choice, and what other trials teach it."""
