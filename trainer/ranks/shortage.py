# pyright: basic
"""Out of memory on a rank: what all ranks do together.

A rank cannot leave a pass: its layers are put together by all ranks, one after the other, and the
others would wait for it. So a rank whose memory runs out in the forward pass goes on through the
remaining layers without computing anything, and says so when the pass is over. All ranks then throw
the pass away and compute the update again, in passes of half the size.

Before the backward pass each rank tries whether there is room for what it takes beyond what is
held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from ..learning.pass_memory import OutOfMemory, ran_out
from .group import Ranks

T = TypeVar("T")


class SharedShortage:
    """Lets the ranks agree on whether a pass fitted into every rank's memory.

    Args:
        ranks: the group.
        layers: in the order in which a pass runs them.
        width: the hidden size.
    """

    def __init__(self, ranks: Ranks, layers: list[nn.Module], width: int) -> None:
        self.ranks = ranks
        self.layers = layers
        self.width = width
        self.size: Callable[[], tuple[int, int]] = lambda: (1, 2)
        """Returns rows and tokens of the pass that is made."""
        self._is_short = False
        self._runs = False
        self._entered: set[int] = set()
        for layer in layers:
            self._wrap(layer)

    def run(self, work: Callable[[], T]) -> T | None:
        """Run a forward pass; None where memory ran out. Every layer has been run, or passed
        through, when it returns.
        """
        self._is_short, self._runs = False, True
        self._entered.clear()
        result: T | None = None
        try:
            result = work()
        except Exception as error:
            # After a layer that computed nothing, the shapes of what follows need not fit.
            if not (self._is_short or ran_out(error)):
                raise
            self._is_short = True
        try:
            if self._is_short:
                for layer in self.layers:
                    if id(layer) not in self._entered:
                        layer(self._nothing())
        finally:
            self._runs = False
        return None if self._is_short else result

    def agree(self, further: int) -> None:
        """Return if the pass had room on all ranks, and has room for `further` bytes; collective.

        Raises:
            OutOfMemory: on all ranks alike, with the size of the passes that had none.
        """
        if not self._is_short and further:
            try:
                torch.empty(further, dtype=torch.uint8, device=self.ranks.device)
            except (MemoryError, RuntimeError) as error:
                if not ran_out(error):
                    raise
                self._is_short = True
        rows, tokens = self.size() if self._is_short else (0, 0)
        short, all_tokens, single = self.ranks.sums(
            self._is_short, tokens, self._is_short and rows == 1
        )
        if short:
            size = int(all_tokens / short)
            raise OutOfMemory(
                f"memory ran out in a pass of {size} tokens on {int(short)} of "
                f"{self.ranks.world} ranks; lower trainer.tokens_per_pass",
                rows=1 if single else 2,
                tokens=size,
            )

    def _wrap(self, layer: Any) -> None:
        forward = layer.forward

        def bounded(*given: Any, **more: Any) -> Any:
            if not self._runs:  # computed again in the backward pass
                return forward(*given, **more)
            self._entered.add(id(layer))
            if not self._is_short:
                try:
                    return forward(*given, **more)
                except (MemoryError, RuntimeError) as error:
                    if not ran_out(error):
                        raise
                    self._is_short = True
            return self._nothing()

        layer.forward = bounded

    def _nothing(self) -> torch.Tensor:
        """Return hidden states of two tokens in the place of what was not computed."""
        return torch.zeros(1, 2, self.width, device=self.ranks.device)
