"""Isolation from inside a slot: namespaces, system-call filters, and the one egress socket."""
