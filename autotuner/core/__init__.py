"""Domain types of the project. They are frozen, and the core uses no clock, no network and no randomness."""
