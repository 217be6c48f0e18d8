"""Descriptions of networks and nodes: presets by name, and what other programs write down."""
