"""Rewards made of probabilities that the policy itself gives to texts: RLPR and SAR.

Both need only the log-probabilities of given texts. In training these are the policy's own, from
its engine, whatever weights it has just then; on a server they are those of a model of a folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Unpack

from ludus.errors import ConfigError, LudusError, MissingExtra
from ludus.messages import Message, Role
from ludus.verdict import Verdict

from ...protocol import Sample
from .conversation import prompt_messages, response_messages
from .head import FolderOptions, HeadSettings
from .policy_text import PolicyText
from .weights import model_folder

Mean = Literal["probability", "logprob", "product"]


class _OfPolicy:
    """The base class of both rewards: holds the model whose probabilities are read."""

    resident = True
    """Served in one process, which holds the model."""
    never_blocks = False
    deterministic = False
    """Equal samples may get different scores, since the policy changes in training."""
    verifier = ""

    def __init__(self, **options: Unpack[FolderOptions]) -> None:
        self.policy: PolicyText | None = None
        self._folder = None
        if model := options.pop("model", ""):
            folder = model_folder(model, verifier=self.verifier)
            try:
                from .folder_text import FolderText
            except ImportError as error:
                raise MissingExtra.of("train", needed_for=self.verifier) from error
            head_settings = HeadSettings(
                device=options.get("device", "auto"), dtype=options.get("dtype", "float32")
            )
            self._folder = FolderText(folder, self.verifier, head_settings)
            self.policy = self._folder

    def use_policy(self, policy: PolicyText) -> None:
        """Score with the policy in training, unless a model was named."""
        if self._folder is None:
            self.policy = policy

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights held here; 0 for the policy, whose weights belong to the engine."""
        return self._folder.memory_bytes if self._folder is not None else 0

    def card(self) -> dict[str, Any]:
        """Return the card of the folder's model, or name the policy in training."""
        if self._folder is not None:
            return self._folder.card()
        return {"weights": "those of the policy in training"}

    async def close(self) -> None:
        """Release the folder's model; the policy in training stays open."""
        if self._folder is not None:
            await self._folder.close()

    def _needed(self) -> PolicyText:
        if self.policy is None:
            raise ConfigError(
                f"{self.verifier} has no model: in 'ludus train' it uses the policy; elsewhere "
                f"name a folder, {self.verifier}?model=FOLDER"
            )
        return self.policy


class ProbabilityReward(_OfPolicy):
    """A verifier that scores how probable the reference is after the policy's reasoning (RLPR).

    The response is cut before its answer, the reference answer (`sample.gold`, a text) is put
    there, and its tokens are scored by teacher forcing:

        r = clip(mean_t p(y_t | prompt, reasoning, y_<t) - mean_t p(y_t | prompt, y_<t), 0, 1)

    Source: arXiv 2506.18254, section 3; the second term is the bias of an answer that is probable
    without any reasoning. The filter by standard deviation is the recipe's (`sampling.filter`).

    A response without an answer to cut at earns 0.

    Args:
        opens, closes: what stands around the answer. The last pair counts.
        mean: "probability" is the paper's; "logprob" is exp of the mean log-probability, and
            "product" the probability of the whole answer, which shrinks with its length.
        debias: subtract the probability without reasoning.
        model: a transformers folder, instead of the policy in training.
        device, dtype: of that model.

    Raises:
        ConfigError: settings that cannot be, or a folder without weights.
    """

    verifier = "probability-reward"

    def __init__(
        self,
        *,
        opens: str = "<answer>",
        closes: str = "</answer>",
        mean: Mean = "probability",
        debias: bool = True,
        **options: Unpack[FolderOptions],
    ) -> None:
        if not opens:
            raise ConfigError(f"{self.verifier}: opens must not be empty")
        if mean not in ("probability", "logprob", "product"):
            raise ConfigError(
                f"{self.verifier}: mean must be probability, logprob or product, got {mean!r}"
            )
        self.opens = opens
        self.closes = closes
        self.mean: Mean = mean
        self.debias = debias
        super().__init__(**options)

    async def score(self, sample: Sample) -> Verdict:
        """Score the reference after the reasoning of `sample.text`."""
        if not isinstance(sample.gold, str) or not sample.gold.strip():
            return Verdict.invalid(
                f"{self.verifier}: gold must be the reference answer as text, got "
                f"{sample.gold!r:.60}"
            )
        try:
            policy = self._needed()
            context = policy.prompt(_context(sample))
            # The answer is encoded by itself, so that it has the same tokens after any reasoning
            # and without (decision 0322).
            answer = policy.encode(sample.gold.strip())
        except LudusError as error:
            return Verdict.invalid(f"{self.verifier}: {error}")
        bare = [*context, *policy.encode(self.opens)]
        if len(bare) + len(answer) > policy.max_length:
            return Verdict.invalid(
                f"{self.verifier}: prompt and reference have {len(bare) + len(answer)} tokens; "
                f"{policy.name} reads {policy.max_length}"
            )
        # The response up to the start of the last answer; None without a closed answer.
        text = sample.text
        cut_text: str | None
        opener_position = text.rfind(self.opens)
        if opener_position < 0 or (self.closes and text.find(self.closes, opener_position) < 0):
            cut_text = None
        else:
            thoughts = sample.answer.written.removesuffix(text)
            cut_text = thoughts + text[: opener_position + len(self.opens)]
        if cut_text is None:
            return Verdict.of(0.0, f"the response has no {self.opens}{self.closes} to be read")
        reasoned = [*context, *policy.encode(cut_text)]
        if len(reasoned) + len(answer) > policy.max_length:
            # The least reward, and not none: else a policy could escape by length (decision 0322).
            return Verdict.of(0.0, f"too long to be scored: {len(reasoned)} tokens of reasoning")
        after = await self._probability(policy, reasoned, answer)
        before = await self._probability(policy, bare, answer) if self.debias else 0.0
        return Verdict.of(
            min(1.0, max(0.0, after - before)),
            f"the reference has probability {after:.3f} after the reasoning, {before:.3f} without"
            if self.debias
            else f"the reference has probability {after:.3f} after the reasoning",
            metrics={"probability/after": after, "probability/before": before},
        )

    async def _probability(
        self, policy: PolicyText, context: Sequence[int], answer: Sequence[int]
    ) -> float:
        logprobs = await text_logprobs(policy, context, answer)
        if self.mean == "probability":
            return math.fsum(map(math.exp, logprobs)) / len(logprobs)
        total = math.fsum(logprobs)
        return math.exp(total if self.mean == "product" else total / len(logprobs))


class SelfAlignedReward(_OfPolicy):
    """A verifier that scores by how much the question lowers the response's perplexity (SAR).

        r = clip((ppl(a) - ppl(a | q)) / ppl(a), -1, 1),   ppl = exp(-mean_t log p(a_t | ...))

    ppl(a) is of the response after an empty question, so that both read the same template. Added to
    a verifier of correctness with a small weight, it favours short answers that keep to the
    question. Source: arXiv 2509.05489.

    Args:
        model: a transformers folder, instead of the policy in training.
        device, dtype: of that model.

    Raises:
        ConfigError: a folder without weights.
    """

    verifier = "self-aligned-reward"

    async def score(self, sample: Sample) -> Verdict:
        """Score `sample.text` with and without the question."""
        if not sample.text.strip():
            return Verdict.of(-1.0, "the response says nothing")
        try:
            policy = self._needed()
            prompt_ids = policy.prompt(_context(sample))
            # The same template with an empty question. A system prompt is not part of the question
            # and stays (decision 0322).
            alone = policy.prompt(
                [
                    message if message.role == Role.SYSTEM else Message(role=message.role)
                    for message in _context(sample)
                ]
            )
        except LudusError as error:
            return Verdict.invalid(f"{self.verifier}: {error}")
        answer = policy.encode(sample.text)
        if len(prompt_ids) + 1 > policy.max_length:
            return Verdict.invalid(
                f"{self.verifier}: the prompt has {len(prompt_ids)} tokens; {policy.name} reads "
                f"{policy.max_length}"
            )
        if max(len(prompt_ids), len(alone)) + len(answer) > policy.max_length:
            # The least reward, and not none: else a policy could escape by length (decision 0322).
            return Verdict.of(-1.0, f"too long to be scored: {len(answer)} tokens")
        log_ppl_given = _log_perplexity(await text_logprobs(policy, prompt_ids, answer))
        log_ppl_alone = _log_perplexity(await text_logprobs(policy, alone, answer))
        # The ratio of the perplexities is taken from their logarithms, because a perplexity may
        # exceed the range of floats. The bound keeps `exp` from overflowing, which it does at 709.
        gain = 1 - math.exp(min(700.0, log_ppl_given - log_ppl_alone))
        metrics = {"sar/log_ppl_given": log_ppl_given, "sar/log_ppl_alone": log_ppl_alone}
        return Verdict.of(min(1.0, max(-1.0, gain)), metrics=metrics)


async def text_logprobs(
    policy: PolicyText, context: Sequence[int], text: Sequence[int]
) -> list[float]:
    """Return the log-probability of each token of `text` after `context`, by teacher forcing.

    Args:
        policy: the model whose probabilities are read.
        context: token ids, at least one: the first token of a text has no probability.
        text: token ids.

    Returns:
        A number for each token of `text`, in nats at temperature 1.
    """
    return (await policy.logprobs([*context, *text]))[len(context) :]


def _log_perplexity(logprobs: Sequence[float]) -> float:
    """Return the logarithm of the perplexity, in nats a token."""
    return -math.fsum(logprobs) / len(logprobs)


def _context(sample: Sample) -> list[Message]:
    """Return the conversation before the assistant's last message."""
    followed = response_messages(sample)
    last = max((n for n, m in enumerate(followed) if m.role == Role.ASSISTANT), default=0)
    return [*prompt_messages(sample), *followed[:last]]
