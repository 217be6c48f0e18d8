"""Routes, one module per noun."""
