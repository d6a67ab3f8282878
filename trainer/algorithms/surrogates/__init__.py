"""Surrogate losses, which are minimised for given advantages. Each returns (sum, weight)."""
