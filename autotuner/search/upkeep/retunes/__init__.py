"""Retunes: when they are due, what their runs measure, how those ended, and what that says of the layout in use."""
