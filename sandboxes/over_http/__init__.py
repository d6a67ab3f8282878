"""Sandboxes over HTTP: routes and sessions of a server, and the clients."""
