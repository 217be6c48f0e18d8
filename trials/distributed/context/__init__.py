"""Attention over sequences that are split over ranks."""
