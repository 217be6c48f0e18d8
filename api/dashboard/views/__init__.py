"""Typed values that the templates of one page show, where the schemas of the REST API do not have them."""
