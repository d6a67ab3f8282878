"""Copies of a running session: the snapshot server and system calls in traced processes."""
