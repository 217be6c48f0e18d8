"""Collectives that torch has not: rings and trees over messages, and all that know which ranks share a node."""
