"""A training that goes on in another layout: what is saved of it, and how each rank finds its part again."""
