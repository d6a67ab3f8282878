"""Faults on purpose, to find out whether a trainer survives them: `--chaos drop=0.1,error=0.1`.

    drop=P        with probability P cut the connection; half of them after the work was done, so
                  that only the reply is lost
    delay=P:S     with probability P answer S seconds late
    error=P       with probability P answer 500

Never on by default, and never applied to `/healthz`, `/readyz` and `/metrics`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ludus.errors import ConfigError

from .faults import Refused

EXAMPLE = "drop=0.1,delay=0.2:0.5,error=0.1"


@dataclass
class Chaos:
    """How often to fail, and how."""

    drop: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.0
    error: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Chaos:
        """Read `drop=0.1,delay=0.2:0.5,error=0.1`.

        Raises:
            ConfigError: an unknown fault, or a probability outside 0..1.
        """
        made = cls(rng=random.Random(seed))
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = item.partition("=")
            if name not in ("drop", "delay", "error"):
                raise ConfigError(
                    f"chaos knows drop, delay and error, not {name!r}; example: {EXAMPLE}"
                )
            made._set(name, value)
        return made

    def _set(self, name: str, value: str) -> None:
        chance, _, seconds = value.partition(":")
        try:
            probability = float(chance)
            self.delay_s = float(seconds) if name == "delay" else self.delay_s
        except ValueError:
            raise ConfigError(f"chaos cannot read {name}={value!r}; example: {EXAMPLE}") from None
        if not 0 <= probability <= 1 or self.delay_s < 0:
            raise ConfigError(f"chaos {name}={value!r}: a probability is in 0..1, a delay not < 0")
        setattr(self, name, probability)

    @property
    def any(self) -> bool:
        """Whether there is anything to fear."""
        return bool(self.drop or self.delay or self.error)

    async def before(self, struck: Callable[[str], None]) -> bool:
        """Delay, fail, or say that the connection is to be cut before the work is done.

        Args:
            struck: told which fault was injected.

        Raises:
            Refused: an error on purpose.
        """
        if self._strikes(self.delay):
            struck("delay")
            await asyncio.sleep(self.delay_s)
        if self._strikes(self.error):
            struck("error")
            raise Refused("an error on purpose (--chaos)", "chaos")
        return self._strikes(self.drop / 2)

    def after(self) -> bool:
        """Whether the connection is to be cut now that the work is done."""
        half = self.drop / 2  # of all requests; those cut before do not come here
        return self._strikes(half / (1 - half))

    def _strikes(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability
