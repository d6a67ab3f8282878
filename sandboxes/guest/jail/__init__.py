"""Isolation from inside a slot: namespaces, system-call filters, and the only egress socket."""
