"""Facts about the local machine: its devices, its processes, and the environment variables that its libraries read."""
