"""Scalar reward models give a number for a conversation, from a sequence-classification head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from ludus.errors import ConfigError, RewardUnavailable
from ludus.verdict import Verdict

from ...protocol import Sample
from .conversation import UnrenderedConversation, prompt_messages, response_messages, says_nothing
from .head import Head, HeadModel, HeadOptions, HeadSettings
from .weights import text_digest

Template = Literal["chat", "pair"]
Output = Literal["raw", "sigmoid"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tokens of a conversation, or the reason why the conversation gets the floor instead."""

    ids: list[int]
    why: str = ""


class RewardModel(HeadModel):
    """A verifier that scores responses with a trained scalar reward model.

    The folder is one of transformers' sequence classification with `num_labels=1`; the conversation
    is written by the model's own tokenizer and chat template. Samples that arrive one by one are
    scored in batches.

    Trained on preferences (Bradley and Terry), the difference of two raw scores is the log-odds
    that the first response is preferred, and the sigmoid of one is the probability that it is
    preferred to a response of score 0.

    Args:
        model: a transformers folder.
        template: "chat" writes the conversation by the chat template; "pair" gives the tokenizer
            the last question and the answer, as encoders such as DeBERTa were trained on.
        output: "raw" is the model's number; "sigmoid" puts it into (0, 1).
        floor: raw score of a response that says nothing or is too long for the model. A score of
            -10 loses against a score of 0 with probability 0.99995. A response that is too long is
            not cut and scored, since the part cut off could hold anything.
        options: the device, the number format and the bounds of batches; see `HeadSettings`.

    Raises:
        ConfigError: no weights, another head, no chat template, or settings that cannot be.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str = "",
        *,
        template: Template = "chat",
        output: Output = "raw",
        floor: float = -10.0,
        **options: Unpack[HeadOptions],
    ) -> None:
        name = "reward-model"
        if template not in ("chat", "pair"):
            raise ConfigError(f"{name}: template must be chat or pair, got {template!r}")
        if output not in ("raw", "sigmoid"):
            raise ConfigError(f"{name}: output must be raw or sigmoid, got {output!r}")
        if not math.isfinite(floor):
            raise ConfigError(f"{name}: floor must be finite, got {floor}")
        super().__init__(
            model,
            Head("AutoModelForSequenceClassification", (1,)),
            name=name,
            needs_template=template == "chat",
            settings=HeadSettings(**options),
        )
        self.template: Template = template
        self.output: Output = output
        self.floor = floor

    def prepare(self, sample: Sample) -> Prepared:
        """Write a sample as tokens.

        Raises:
            RewardUnavailable: the prompt leaves no room for a response, or cannot be written.
        """
        if says_nothing(sample):
            return Prepared([], "the response says nothing")
        try:
            if self.template == "pair":
                prompt = prompt_messages(sample)
                ids = self.conversations.encode_pair(prompt[-1].text if prompt else "", sample.text)
            else:
                messages = [*prompt_messages(sample), *response_messages(sample)]
                ids = self.conversations.encode(self.conversations.render(messages))
        except UnrenderedConversation as error:
            raise RewardUnavailable(Verdict.invalid(f"reward-model: {error}")) from error
        if len(ids) <= self.token_limit:
            return Prepared(ids)
        answer_ids = self.conversations.encode(self.conversations.plain(sample.text))
        if len(ids) - len(answer_ids) >= self.token_limit:
            raise RewardUnavailable(
                Verdict.invalid(
                    f"reward-model: the prompt alone has about {len(ids) - len(answer_ids)} "
                    f"tokens, and the model reads {self.token_limit}"
                )
            )
        return Prepared(
            [], f"too long for the reward model: {len(ids)} tokens, of at most {self.token_limit}"
        )

    def score_batch(self, samples: Sequence[Prepared]) -> list[Verdict]:
        """Score prepared samples and return a verdict for each, in order."""
        scored_samples = [prepared for prepared in samples if not prepared.why]
        scores = iter(
            self._forward([prepared.ids for prepared in scored_samples]) if scored_samples else []
        )
        return [
            self._verdict(self.floor, prepared.why)
            if prepared.why
            else self._verdict(next(scores), "", prepared)
            for prepared in samples
        ]

    def card(self) -> dict[str, Any]:
        """Return the weights' digest, the template, the token limit and the device."""
        template = self.conversations.tokenizer.chat_template or ""
        return {
            **super().card(),
            "template": f"chat {text_digest(template)}" if self.template == "chat" else "pair",
            "output": self.output,
        }

    def _forward(self, rows: Sequence[Sequence[int]]) -> list[float]:
        from torch import inference_mode

        from .loading import filler_for, padded

        filler = filler_for(rows, self.conversations.tokenizer.pad_token_id)
        ids_BT, mask_BT = padded(rows, filler, self.model.device)
        self.model.config.pad_token_id = filler
        with inference_mode():
            logits_B1 = self.model(input_ids=ids_BT, attention_mask=mask_BT).logits
        scores: list[float] = logits_B1.float().squeeze(-1).tolist()
        return scores

    def _verdict(self, raw: float, reason: str, row: Prepared | None = None) -> Verdict:
        if not math.isfinite(raw):
            return Verdict.error(f"the reward model gave {raw}: its weights may be broken")
        reward = raw if self.output == "raw" else 1 / (1 + math.exp(-max(-700.0, raw)))
        metrics = {"reward_model/raw": raw}
        if row is not None:
            metrics["reward_model/tokens"] = float(len(row.ids))
        return Verdict.of(reward, reason, metrics=metrics)
