"""Typed values that the templates of one page show, where core and search do not have them."""
