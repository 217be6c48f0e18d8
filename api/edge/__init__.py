"""The layers around every request before it reaches a route, each a class of its own."""
