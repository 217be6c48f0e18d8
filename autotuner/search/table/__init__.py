"""The trials of a sweep as a table: its columns, what rows are asked for, and in which order."""
