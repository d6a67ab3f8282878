"""Rewards that a trained model gives: preferences between images, reward models of text.

This package may import torch and transformers. Modules that do are imported when a model is asked
for, so that a server of rule verifiers needs neither.
"""
