"""What a result says to people: values with their units, and how each surface writes them."""
