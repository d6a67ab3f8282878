"""The requests that the local engine is sampling, with keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .cached_model import CachedModel, PrefixStore, PromptRow
from .kv_cache import KeptPrefix
from .requests import GenerationRequest, deliver, draw, first_of_each


class RunningBatch:
    """Computes prompts and samples tokens for rows that join and leave at any time.

    Used by one thread. An exception in a forward pass leaves the rows as they were; the caller
    ends the requests.

    Args:
        cached: the model and the cache of the rows.
        prefixes: the keys and values that are kept between turns.
        version: the version of the model's weights.
    """

    def __init__(self, cached: CachedModel, prefixes: PrefixStore, version: int) -> None:
        self.cached = cached
        self.prefixes = prefixes
        self.version = version
        self.active: list[GenerationRequest] = []
        self.sampled_tokens = 0
        self.computed_prompt_tokens = 0
        self.recomputed_tokens = 0
        """How many tokens of running requests were computed again after new weights."""

    def admit(self, arrived: Sequence[GenerationRequest]) -> None:
        """Compute each distinct prompt once, since rollouts of a group share theirs, and sample the
        first token of each row.
        """
        sharing: dict[tuple[int, ...], list[GenerationRequest]] = {}
        for request in arrived:
            sharing.setdefault(request.key(request.prompt_length), []).append(request)
        first = len(self.active)
        prompts = list(sharing)
        logits_BV, bases = self._compute_prompts(sharing, first)
        # Save prompts that were computed from the start, since others may share their beginning. A
        # prompt that extends a saved one is the next turn of an episode: `_retire` saves its row.
        for row, (alike, base) in enumerate(zip(sharing.values(), bases, strict=True), first):
            if not base:
                kept = self._keep(row, alike[0], alike[0].prompt_length)
                for request in alike:
                    request.kept = kept
        # The first request of each prompt uses the computed row; the others get a copy behind.
        rows, order = first_of_each(list(sharing.values()))
        sources = [first + index for index in order[len(prompts) :]]
        targets = range(first + len(prompts), first + len(rows))
        self.cached.cache.copy_rows(sources, targets, max(map(len, prompts)))
        self.active += rows
        self._append(rows, logits_BV[order])
        self._retire()

    def decode(self) -> None:
        """Sample a token for every active row."""
        tokens = [request.ids[-1] for request in self.active]
        positions = [len(request.ids) - 1 for request in self.active]
        deltas = [request.rope_delta for request in self.active]
        self._append(self.active, self.cached.next_logits(tokens, positions, deltas))
        self._retire()

    def outdate(self) -> None:
        """Note that the weights are about to change: drop the saved keys, and mark the running
        requests, whose keys now belong to older weights.
        """
        self.prefixes.clear()
        self.cached.renew()
        for request in self.active:
            request.stale, request.kept = True, None

    def recompute(self) -> None:
        """Compute the keys and values of all running requests again if some of them are older than
        the weights.
        """
        if not any(request.stale for request in self.active):
            return
        # The last sampled token was never fed to the model, so the cache has no keys of it.
        rows = [PromptRow(tuple(request.ids[:-1]), 0, request.images) for request in self.active]
        self.cached.prompt_logits(rows, 0)
        self.recomputed_tokens += sum(len(row.ids) for row in rows)
        for request in self.active:
            request.stale = False

    def _compute_prompts(
        self, sharing: Mapping[tuple[int, ...], Sequence[GenerationRequest]], first: int
    ) -> tuple[torch.Tensor, list[int]]:
        """Run the part of each prompt that is not kept; returns the logits after each prompt, [B,
        V], and how many tokens were kept.
        """
        matches = [self.prefixes.longest(key) for key in sharing]
        bases = [0 if kept is None else kept.length for kept in matches]
        self.cached.cache.load(first, matches)
        for alike, kept in zip(sharing.values(), matches, strict=True):
            for request in alike:
                request.kept = kept
        rows = [
            PromptRow(tuple(alike[0].ids), base, alike[0].images)
            for alike, base in zip(sharing.values(), bases, strict=True)
        ]
        self.computed_prompt_tokens += sum(len(row.new) for row in rows)
        logits_BV, deltas = self.cached.prompt_logits(rows, first)
        for alike, delta in zip(sharing.values(), deltas, strict=True):
            for request in alike:
                request.rope_delta = delta
        return logits_BV, bases

    def _append(self, requests: list[GenerationRequest], logits_BV: torch.Tensor) -> None:
        for request, token, logprob in zip(requests, *draw(requests, logits_BV), strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
            request.versions.append(self.version)
        self.sampled_tokens += len(requests)

    def _retire(self) -> None:
        """Remove finished rows: save the keys for the next turn, and move the last rows into the
        gaps.
        """
        ends = [request.finished() for request in self.active]
        gone = [row for row, finish in enumerate(ends) if finish is not None]
        if not gone:
            return
        for row in gone:
            # Keys that were computed with older weights must not serve a later turn.
            if not (ended := self.active[row]).stale:
                # The last sampled token was never fed to the model, so the cache has no keys of it.
                self._keep(row, ended, len(ended.ids) - 1)
        leaving = [
            (request, request.answer(finish))
            for request, finish in zip(self.active, ends, strict=True)
            if finish is not None
        ]
        # The last remaining rows move into the places of finished rows.
        remaining = len(self.active) - len(gone)
        # The cache needs rows 0 to `remaining` without gaps. A finished row behind them is dropped
        # by the cut below; a finished row among them is overwritten with a later, unfinished one.
        targets = [row for row in gone if row < remaining]
        sources = [row for row in range(remaining, len(ends)) if ends[row] is None]
        movers = [self.active[row] for row in sources]
        # Of the last sampled token the cache has no keys yet.
        length = max((len(request.ids) for request in movers), default=1) - 1
        self.cached.cache.copy_rows(sources, targets, length)
        for row, mover in zip(targets, movers, strict=True):
            self.active[row] = mover
        del self.active[remaining:]
        deliver(leaving)

    def _keep(self, row: int, request: GenerationRequest, length: int) -> KeptPrefix | None:
        """Keep the keys of the first `length` ids of a row, unless kept already."""
        if not self.prefixes.wants(ids := request.key(length)):
            return request.kept
        kept = self.cached.cache.keep(row, length, request.kept)
        self.prefixes.put(ids, kept)
        return kept
