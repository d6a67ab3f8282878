"""Environments over HTTP: sessions on a server, worker processes, and the clients."""
