"""Stateful Python sessions in a sandbox, and snapshots of sessions."""
