"""Corrections between the sampling policy and the learning policy: weights (float) and filters
(bool masks).
"""
