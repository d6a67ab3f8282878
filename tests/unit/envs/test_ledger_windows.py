"""Experts of LedgerRelay's tiers in windows that do not hold the episode."""

from typing import Any

import pytest

from ludus.agent import ChatFormat, TurnKind
from ludus.agent.context import ContextSettings, make_context
from ludus.agent.parsing import HermesFormat
from ludus.envs import make_async
from ludus.trainer.models.tiny import briefing_phrases, build_tokenizer
from ludus.trainer.rollout.demonstrations import ExpertPolicy, demonstrate

MARKS = ("<|im_end|>\n<|im_start|>assistant\n", "\n<|im_start|>user\n")


@pytest.mark.parametrize("last_pair", ["discard", "carry", "keep"])
@pytest.mark.parametrize("tier", ["sum", "pointer", "fetch"])
async def test_the_expert_is_right_across_its_own_summaries(tier: str, last_pair: Any) -> None:
    settings = ContextSettings(
        manager="summarize",
        threshold=0.6,
        max_summaries=99,
        summary_tokens=10,
        last_pair=last_pair,
        instruction="Sum",
        continuation="{summary}",
    )
    requeries = 0 if last_pair == "carry" else 99
    session = make_async("ludus/ledger-v0", tier=tier, requeries=requeries)
    phrases = briefing_phrases(session.env.briefing())
    tokenizer: Any = build_tokenizer([*phrases, *MARKS])
    for seed in range(5):
        episode = await demonstrate(
            ExpertPolicy(
                session,
                ChatFormat(tokenizer, HermesFormat()),
                context=make_context(settings),
                window=72,
            ),
            split="train",
            seed=seed,
        )
        (trajectory,) = episode.trajectories
        assert trajectory.ret == 1.0
        assert trajectory.metrics["summaries"] >= 2
        if tier == "fetch" and last_pair == "discard":
            assert_what_was_dropped_was_asked_for_again(trajectory)


def assert_what_was_dropped_was_asked_for_again(trajectory: Any) -> None:
    """Every window after a summary begins with the step that shows the dropped line again."""
    for before, after in zip(trajectory.segments, trajectory.segments[1:], strict=False):
        (dropped,) = before.discarded
        summary = before.turns[-1]
        assert summary.kind is TurnKind.SUMMARY
        first = after.turns[0].message.text
        assert first == ("n" if dropped.message.text == "n" else dropped.message.text)
        assert (first == "n") == ("#" not in summary.message.text)
