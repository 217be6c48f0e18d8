"""Checks of stored clusters: the engine asked, a small trial on its nodes, their devices and links measured."""
