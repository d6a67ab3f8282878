"""Verifiers over HTTP: the server, the worker processes of verifiers, and the client."""
