"""The schema revisions, a module each, in the order of their numbers."""
