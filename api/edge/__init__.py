"""The layers that every request passes before it reaches a route, one class for each."""
