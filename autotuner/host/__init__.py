"""This machine: its devices, its processes, and the variables that its libraries obey."""
