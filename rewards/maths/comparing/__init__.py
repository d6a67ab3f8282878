"""Comparison of parsed answers: lists, sets of reals, relations, units, words and choices."""
