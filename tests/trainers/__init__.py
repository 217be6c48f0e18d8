"""A small trainer of a user's own, and its registrations."""
