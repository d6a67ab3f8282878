"""Environments on servers of other projects, which are named by an address."""
