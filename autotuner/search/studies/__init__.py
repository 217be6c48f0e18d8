"""Optimizer studies: the state machine, its Optuna study, and the worker that runs it."""
