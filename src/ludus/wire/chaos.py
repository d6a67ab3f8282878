"""Faults injected on purpose, to test whether a trainer survives: `--chaos drop=0.1,error=0.1`.

    drop=P        with probability P cut the connection; half of the cuts come after the work was
                  done, so that only the reply is lost
    delay=P:S     with probability P answer S seconds late
    error=P       with probability P answer 500

No fault is injected by default, and none ever on `/healthz`, `/readyz` and `/metrics`.
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
    """The probabilities of the faults that a server injects, with the random generator that
    decides.
    """

    drop: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.0
    error: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Chaos:
        """Read a specification such as `drop=0.1,delay=0.2:0.5,error=0.1`.

        Args:
            text: the specification; see the module for its three faults.
            seed: the seed of the random generator, so that a run can be repeated.

        Raises:
            ConfigError: the fault is unknown, a number cannot be read, a probability is outside
                0..1 or a delay is negative.
        """
        chaos = cls(rng=random.Random(seed))
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = item.partition("=")
            if name not in ("drop", "delay", "error"):
                raise ConfigError(
                    f"chaos knows drop, delay and error, not {name!r}; example: {EXAMPLE}"
                )
            chance, _, seconds = value.partition(":")
            try:
                probability = float(chance)
                chaos.delay_s = float(seconds) if name == "delay" else chaos.delay_s
            except ValueError:
                raise ConfigError(
                    f"chaos cannot read {name}={value!r}; example: {EXAMPLE}"
                ) from None
            if not 0 <= probability <= 1 or chaos.delay_s < 0:
                raise ConfigError(
                    f"chaos {name}={value!r}: a probability is in 0..1, a delay not < 0"
                )
            setattr(chaos, name, probability)
        return chaos

    @property
    def any(self) -> bool:
        """Whether any fault has a probability above zero."""
        return bool(self.drop or self.delay or self.error)

    async def before(self, struck: Callable[[str], None]) -> bool:
        """Inject the faults that come before the work: delay, fail, or have the connection cut.

        Args:
            struck: is called with the name of each fault injected ("delay", "error").

        Returns:
            whether the caller is to cut the connection instead of doing the work.

        Raises:
            Refused: an error was injected (500).
        """
        if self._strikes(self.delay):
            struck("delay")
            await asyncio.sleep(self.delay_s)
        if self._strikes(self.error):
            struck("error")
            raise Refused("an error on purpose (--chaos)", "chaos")
        return self._strikes(self.drop / 2)

    def after(self) -> bool:
        """Decide whether the caller is to cut the connection now that the work is done."""
        # Half of all requests' drops fall here. Requests cut before never arrive, so the chance
        # among the rest is conditional: (drop / 2) / (1 - drop / 2).
        half = self.drop / 2
        return self._strikes(half / (1 - half))

    def _strikes(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability
