"""A dry run of one rank of any layout in one process, with tensors that hold nothing."""
