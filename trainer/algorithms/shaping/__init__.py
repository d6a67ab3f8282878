"""Rewards for more than being right or wrong: length, repetition, format, and the model's own
probabilities.
"""
