"""The pages, one module for each part of the dashboard: the values that each page shows, and its templates."""
