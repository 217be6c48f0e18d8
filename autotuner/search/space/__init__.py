"""Layouts that a job may have: the legal ones, those that a trainer can run, why others fall out, what is near."""
