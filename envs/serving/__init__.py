"""Environments over HTTP: sessions on a server, their worker processes, and the clients."""
