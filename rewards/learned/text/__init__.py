"""Learned rewards of text: reward models, process reward models, judgements that a model writes,
and rewards made of the policy's own probabilities.

torch and transformers are imported when a model is asked for, not with this package.
"""
