"""Typed values for the templates of single pages that neither ``core`` nor ``search`` defines."""
