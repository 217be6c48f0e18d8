"""Pages for people: rendered on the server, kept live by one small script."""
