"""The best layout for each phase of a job, with the cost of switching between them."""
