"""Process reward models score every step of a response; a turn gets what its steps add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import mul
from typing import Any, Literal, Unpack, get_args

from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, Role
from ludus.verdict import Verdict

from ...protocol import Sample
from .conversation import (
    Conversations,
    UnrenderedConversation,
    prompt_messages,
    response_messages,
    says_nothing,
)
from .head import Head, HeadModel, HeadOptions, HeadSettings
from .weights import text_digest

Whole = Literal["min", "mean", "last", "product", "sum"]
WHOLES: tuple[Whole, ...] = get_args(Whole)


def contributions(scores: Sequence[float], aggregate: Whole) -> list[float]:
    """Return what each step adds to the reward of the whole; the sum is the reward.

    | whole | the reward | what a step adds |
    |---|---|---|
    | min | the least score | the reward at the first step with that score, else 0 |
    | mean | the mean | a share of 1 / n of its score |
    | last | the last score | the reward at the last step |
    | product | the product | by how much it changes the product so far: p_i - p_(i-1), p_0 = 0 |
    | sum | the sum | its score |

    Args:
        scores: the scores of the steps, in order.
        aggregate: how the scores become one reward.

    >>> contributions([0.5, 0.25, 1.0], "min")
    [0.0, 0.25, 0.0]
    >>> contributions([0.5, 0.5], "product")
    [0.5, -0.25]
    """
    if not scores:
        return []
    if aggregate == "sum":
        return list(scores)
    if aggregate == "mean":
        return [score / len(scores) for score in scores]
    if aggregate == "product":
        products = list(accumulate(scores, mul))
        return [products[0], *(b - a for a, b in pairwise(products))]
    position = len(scores) - 1 if aggregate == "last" else scores.index(min(scores))
    return [score if place == position else 0.0 for place, score in enumerate(scores)]


def split_steps(text: str, separator: str) -> list[str]:
    """Split a text into steps: the parts between separators that are not blank, stripped.

    >>> split_steps("a\\n\\n\\n\\nb", "\\n\\n")
    ['a', 'b']
    """
    return [step.strip() for step in text.split(separator) if step.strip()]


def by_turn(values: Sequence[float], turns: Sequence[int], count: int) -> list[float]:
    """Add up the values of steps by turn.

    Args:
        values: the value of each step.
        turns: the number of the turn of each step, from 0.
        count: number of turns; the length of the result.

    >>> by_turn([1.0, 2.0, 4.0], [0, 0, 2], 3)
    [3.0, 0.0, 4.0]
    """
    return [
        math.fsum(
            value for value, value_turn in zip(values, turns, strict=True) if value_turn == turn
        )
        for turn in range(count)
    ]


Kind = Literal["token", "mark"]
NAME = "process-reward"


@dataclass(slots=True)
class Steps:
    """The tokens of a conversation, with the place at which each step is scored."""

    ids: list[int] = field(default_factory=list[int])
    places: list[int] = field(default_factory=list[int])
    turns: list[int] = field(default_factory=list[int])
    """The number of the turn of each step, from 0."""
    count: int = 0
    """Number of turns."""
    why: str = ""
    """The reason why the response is not given to the model; empty for a response that is."""


def written_steps(
    conversations: Conversations,
    prompt: Sequence[Message],
    followed: Sequence[Message],
    *,
    separator: str,
    end: Sequence[int],
) -> tuple[Steps, int]:
    """Return the conversation's tokens with the places of the steps, and the number of tokens
    of the prompt.

    The tokens are encoded piece by piece, so that the end of each step is known as an index.
    For each turn the template renders everything before the turn, and only what is new since
    the turn before is encoded. That works only if the template leaves earlier turns as they
    were.

    Args:
        conversations: writes conversations for the model.
        prompt: the messages before the solution.
        followed: the messages of the solution.
        separator: the text that ends a step.
        end: the ids that are written after each step.

    Raises:
        UnrenderedConversation: the template refuses the conversation, or rewrites earlier turns.
    """
    # `text` is the conversation up to the last turn; `stripped` is the same where the template
    # strips the white space before an answer.
    steps, text, stripped = Steps(), "", ""
    opening = len(conversations.encode(conversations.render(prompt, answering=True)))
    for place, message in enumerate(followed):
        if message.role != Role.ASSISTANT:
            continue
        before = [*prompt, *followed[:place]]
        upto = conversations.render(before, answering=True)
        text = text if upto.startswith(text) else stripped
        if not upto.startswith(text):
            raise UnrenderedConversation(
                "the chat template rewrites earlier turns, so their steps have no fixed place"
            )
        steps.ids += conversations.encode(upto[len(text) :])
        for step in split_steps(message.text, separator):
            steps.ids += [*conversations.encode(conversations.plain(step)), *end]
            steps.places.append(len(steps.ids) - 1)
            steps.turns.append(steps.count)
        steps.count += 1
        plain_text = conversations.plain(message.text).rstrip()
        text, stripped = upto + plain_text, upto + plain_text.lstrip()
    return steps, opening


class ProcessRewardModel(HeadModel):
    """A verifier that scores every step of a response with a trained process reward model.

    The verdict's reward is for the whole response. `turn_rewards` says how much of the reward each
    turn earned, and in training that much is credited to the turn (decision 0321). Steps are the
    parts of a turn between separators.

    Args:
        model: a transformers folder.
        kind: "token" is a token-classification head that is read at the end of each step (two
            labels: the probability of the second; one: its sigmoid). "mark" is a causal model that
            was trained to write `good` or `bad` at a mark after each step, as Math-Shepherd was.
        whole: how the scores become one reward: min, mean, last, product or sum.
        separator: the text that ends a step; it is written after each step for kind "token".
        mark, good, bad: for kind "mark", one token each.
        options: the device, the number format and the bounds of batches; see `HeadSettings`. A
            response of more than `max_tokens` earns 0, like a response that says nothing.

    Raises:
        ConfigError: no weights, another head, marks of several tokens, or settings that cannot be.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str = "",
        *,
        kind: Kind = "token",
        whole: Whole = "min",
        separator: str = "\n\n",
        mark: str = "ки",  # the mark that Math-Shepherd was trained with
        good: str = "+",
        bad: str = "-",
        **options: Unpack[HeadOptions],
    ) -> None:
        if kind not in ("token", "mark"):
            raise ConfigError(f"{NAME}: kind must be token or mark, got {kind!r}")
        if whole not in WHOLES:
            raise ConfigError(f"{NAME}: whole must be one of {', '.join(WHOLES)}, got {whole!r}")
        if not separator:
            raise ConfigError(f"{NAME}: separator must not be empty")
        super().__init__(
            model,
            Head("AutoModelForTokenClassification", (1, 2))
            if kind == "token"
            else Head("AutoModelForCausalLM"),
            name=NAME,
            settings=HeadSettings(**options),
        )
        self.kind: Kind = kind
        self.whole: Whole = whole
        self.separator = separator
        self._end = (
            self.conversations.encode(separator) if kind == "token" else [self._token_id(mark)]
        )
        self._choice = [self._token_id(good), self._token_id(bad)] if kind == "mark" else []

    def prepare(self, sample: Sample) -> Steps:
        """Write a sample as tokens, with the places of the steps.

        Raises:
            RewardUnavailable: the prompt leaves no room for a response, or the template rewrites
                what was said, so that no place of a step can be known.
        """
        messages = response_messages(sample)
        count = sum(message.role == Role.ASSISTANT for message in messages)
        if says_nothing(sample):
            return Steps(count=count, why="the response says nothing")
        try:
            steps, opening = written_steps(
                self.conversations,
                prompt_messages(sample),
                messages,
                separator=self.separator,
                end=self._end,
            )
        except UnrenderedConversation as error:
            raise RewardUnavailable(Verdict.invalid(f"{NAME}: {error}")) from error
        if opening >= self.token_limit:
            raise RewardUnavailable(
                Verdict.invalid(
                    f"{NAME}: the prompt alone has {opening} tokens, and the model reads "
                    f"{self.token_limit}"
                )
            )
        if len(steps.ids) > self.token_limit:
            steps.why = (
                f"too long for the process reward model: {len(steps.ids)} tokens, of at most "
                f"{self.token_limit}"
            )
        elif not steps.places:
            steps.why = "the response has no step"
        return steps

    def score_batch(self, samples: Sequence[Steps]) -> list[Verdict]:
        """Score prepared samples and return a verdict for each, in order."""
        scored_samples = [prepared for prepared in samples if not prepared.why]
        scores = iter(self._forward(scored_samples) if scored_samples else [])
        return [
            Verdict.of(0.0, prepared.why) if prepared.why else self._verdict(prepared, next(scores))
            for prepared in samples
        ]

    def card(self) -> dict[str, Any]:
        """Return the weights' digest, the template, the kind of head and the device."""
        template = text_digest(self.conversations.tokenizer.chat_template)
        return {
            **super().card(),
            "template": f"chat {template}, steps by {self.separator!r}",
            "kind": self.kind,
            "whole": self.whole,
        }

    def _token_id(self, text: str) -> int:
        """Return the id of a text that must be a single token."""
        ids = self.conversations.encode(text)
        if len(ids) != 1:
            raise ConfigError(
                f"{NAME}: {text!r} is {len(ids)} tokens of this model; mark, good and bad are one "
                "each"
            )
        return ids[0]

    def _forward(self, rows: Sequence[Steps]) -> list[list[float]]:
        import torch

        from .loading import filler_for, padded

        id_rows = [row.ids for row in rows]
        filler = filler_for(id_rows, self.conversations.tokenizer.pad_token_id)
        ids_BT, mask_BT = padded(id_rows, filler, self.model.device)
        with torch.inference_mode():
            logits_BTL = self.model(input_ids=ids_BT, attention_mask=mask_BT).logits
            scores: list[list[float]] = []
            for row, logits_TL in zip(rows, logits_BTL, strict=True):
                at_SL = logits_TL[row.places].float()
                if self.kind == "mark":  # a softmax over the tokens `good` and `bad` alone
                    good_S = at_SL[:, self._choice].softmax(-1)[:, 0]
                elif at_SL.shape[1] == 1:
                    good_S = at_SL[:, 0].sigmoid()
                else:
                    good_S = at_SL.softmax(-1)[:, 1]
                scores.append(good_S.tolist())
        return scores

    def _verdict(self, steps: Steps, scores: Sequence[float]) -> Verdict:
        if not all(map(math.isfinite, scores)):
            return Verdict.error(f"{NAME} gave {scores}: its weights may be broken")
        earned = contributions(scores, self.whole)  # these sum to the reward of the whole
        scores_text = ", ".join(f"{score:.2f}" for score in scores[:12])
        return Verdict.of(
            math.fsum(earned),
            f"{self.whole} of {len(scores)} steps: {scores_text}"
            f"{' ...' if len(scores) > 12 else ''}",
            turn_rewards=by_turn(earned, steps.turns, steps.count),
            metrics={"process_reward/steps": float(len(scores)), "process_reward/min": min(scores)},
        )
