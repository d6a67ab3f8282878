"""Sandboxes on this machine: slots, their supervisors, and the bounds on their resources."""
