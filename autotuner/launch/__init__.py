"""Runs trials: the implementations of the ``Launcher`` port, and what they know about this machine."""
