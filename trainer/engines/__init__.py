"""Engines that sample tokens for a policy."""
