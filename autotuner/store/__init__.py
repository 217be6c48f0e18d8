"""Adapters of the Store port: SQL and memory."""
