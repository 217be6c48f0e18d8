"""The pages, a module per place: what each shows, and the templates that show it."""
