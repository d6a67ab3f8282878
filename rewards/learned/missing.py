"""The error that every learned verifier raises where no weights are found."""

from __future__ import annotations

from ludus.errors import ConfigError


class MissingWeights(ConfigError):
    """A model has no weights. The message says where weights can be had and where to put them."""
