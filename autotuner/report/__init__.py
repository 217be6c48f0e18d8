"""Reports of results for people: values with their units, and how each surface renders them."""
