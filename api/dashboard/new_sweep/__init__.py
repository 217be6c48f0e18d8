"""The form that asks for a sweep: its inputs, what is read from them, and the same request said elsewhere."""
