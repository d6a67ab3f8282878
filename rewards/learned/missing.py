"""What every learned verifier says where its weights are not there."""

from __future__ import annotations

from ludus.errors import ConfigError


class MissingWeights(ConfigError):
    """A model has no weights; the message says where to get them and where to put them."""
