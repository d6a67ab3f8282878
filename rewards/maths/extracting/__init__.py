"""Extraction of the answer from a response: boxes, tags, closing sentences and last expressions."""
