"""Spaces of layouts: the legal layouts of a job, those that a trainer can run, reasons for others, and neighbours."""
