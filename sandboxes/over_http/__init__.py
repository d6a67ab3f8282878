"""Sandboxes over HTTP: the routes of a server, its sessions, and the clients."""
