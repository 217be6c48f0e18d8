"""A sweep: the plan that decides what runs next, and the worker that runs it under a lease."""
