"""The tools for the documentation: the site, its generated pages, and the count of its words."""
