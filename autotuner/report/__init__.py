"""Reports of results for people: values with their units, and the renderers for terminals, pages and Markdown."""
