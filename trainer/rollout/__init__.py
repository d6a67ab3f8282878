"""Rollouts for training: episodes are collected in groups, scored, and drawn from tasks."""
