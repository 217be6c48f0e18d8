"""A dry run of one rank of any layout in a single process, with tensors that have shapes but no data."""
