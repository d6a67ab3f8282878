"""One module for each kind of peer that runs in an interpreter of its own.

A module has `load(settings)`, which imports the peer's package and returns facts about it, and
`make(family, settings)`, which returns an object with the methods of
`inside.contract.PeerEpisodes`.
"""
