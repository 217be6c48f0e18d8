"""Facts about accelerators, links and models, and the readers that turn descriptions into values of the core."""
