"""What a table of predictions leaves open: options that were not searched, and what makes a job fit."""
