"""The Optuna sampler over a table of legal layouts, its model of their results, and transfer from other trials."""
