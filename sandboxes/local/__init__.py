"""Sandboxes on this machine: slots, supervisors of slots, and limits on resources."""
