"""Adapters of the Launcher port, and what this machine has."""
