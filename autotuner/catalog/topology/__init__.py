"""Readers of files that describe a cluster's network or its nodes."""
