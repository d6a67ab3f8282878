"""Losses that learn from preferences between answers."""
