"""Exports: writes a layout as the configuration of a trainer, and reads it back; one file per trainer."""
