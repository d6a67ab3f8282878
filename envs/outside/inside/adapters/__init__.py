"""Adapters run in the peers' interpreters, a module for each kind.

A module has `load(settings)`, which imports the peer's package and returns facts about it, and
`make(family, settings)`, which returns an object with the methods of
`inside.contract.PeerEpisodes`.
"""
