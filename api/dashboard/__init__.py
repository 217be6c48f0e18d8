"""Pages for people: rendered on the server, and kept up to date by one small script."""
