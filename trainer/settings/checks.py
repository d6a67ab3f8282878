"""Checks that the sections of the settings share."""

from __future__ import annotations

import math

from ludus.errors import ConfigError
from ludus.secret import Secret


def positive(name: str, value: float) -> None:
    if not value > 0:  # NaN too
        raise ConfigError(f"{name} must be positive, got {value}")
    if math.isinf(value):
        raise ConfigError(f"{name} must be finite, got {value}")


def not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ConfigError(f"{name} must not be negative, got {value}")


def keep_secret(config: object, name: str) -> None:
    """Replace a secret that was given as text by a `Secret`, which is never printed."""
    object.__setattr__(config, name, Secret.of(getattr(config, name)))
