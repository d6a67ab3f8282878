"""One reward made of several: weights, gates, caps, order, length, and the group.

# reward.toml
floor = -0.5

[[parts]]
name = "maths"
gate = true

[[parts]]
name = "judge?base_url=http://127.0.0.1:8000/v1&model=my-judge&rubric=style.toml"
label = "style"
weight = 0.5
normalise = "rank"

[length]
free_words = 300
max_words = 600
penalty = 0.3
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import msgspec

from ludus.background import failing_where_given_up
from ludus.errors import ConfigError
from ludus.verdict import Verdict
from ludus.wire.address import parse_served

from .learned.text.policy_text import PolicyText, ReadsPolicy
from .measured import KnownJudge, judges_of
from .protocol import GroupVerifier, Sample, Verifier, failed, is_bug, one_each, usable
from .registry import make_verifier

logger = logging.getLogger(__name__)

Normalisation = Literal["", "mean", "zscore", "rank"]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verifier with its place in a composition.

    Args:
        name: name of the verifier, with options as a server takes them (`maths?timeout_s=1`).
        label: name of the part in verdicts; the verifier's name by default.
        weight: factor of the part in the sum; a gate may have weight 0.
        gate: the part's reward has to reach `at_least` before anything else counts.
        at_least: threshold of a gate.
        low, high: bounds of the part's reward, before its weight.
        normalise: over the answers of a group: "mean" subtracts the mean, "zscore" divides by the
            standard deviation too (0 where all are equal), "rank" gives 0 to the worst and 1 to the
            best, ties shared.

    Raises:
        ValueError: bounds that are crossed, or a weight or threshold that is not finite.
    """

    name: str
    label: str = ""
    weight: float = 1.0
    gate: bool = False
    at_least: float = 0.5
    low: float = -math.inf
    high: float = math.inf
    normalise: Normalisation = ""

    def __post_init__(self) -> None:
        if not self.label:
            msgspec.structs.force_setattr(self, "label", parse_served(self.name)[0])
        if not math.isfinite(self.weight):
            raise ValueError(f"the weight of {self.label!r} must be finite, got {self.weight!r}")
        if not math.isfinite(self.at_least):  # a gate that no reward can pass, or none can miss
            raise ValueError(f"at_least of {self.label!r} must be finite, got {self.at_least!r}")
        if not self.low < self.high:
            raise ValueError(f"{self.label!r} is bounded by {self.low:g} and {self.high:g}")
        if self.gate and self.normalise:
            raise ValueError(f"the gate {self.label!r} cannot be normalised; use two parts")


MAX_WORD_CHARACTERS = 24


class LengthShaping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A penalty that grows with the words of a response: none up to `free_words`, the whole
    `penalty` from `max_words` on, linear between (the shape of DAPO's overlong penalty, eq. 13).

    Each 24 characters without white space are a word, so that words that are glued together are
    not free.
    """

    free_words: int
    max_words: int
    penalty: float

    def __post_init__(self) -> None:
        if not 0 <= self.free_words < self.max_words:
            raise ValueError(
                f"length needs 0 <= free_words < max_words: {self.free_words}, {self.max_words}"
            )
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"the penalty on length must be 0 or more, got {self.penalty!r}")

    def of(self, text: str) -> float:
        """Return the cost of a text's length, as a number that is added to the reward.

        >>> LengthShaping(free_words=2, max_words=4, penalty=1.0).of("one two three")
        -0.5
        """
        words = sum(math.ceil(len(run) / MAX_WORD_CHARACTERS) for run in text.split())
        excess = (words - self.free_words) / (self.max_words - self.free_words)
        return -self.penalty * min(1.0, max(0.0, excess))


class Composition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule by which parts become a reward: floor if a gate fails, else the weighted sum within
    bounds.

    Args:
        parts: the verifiers. Gates are asked first, one after the other in this order, so that a
            response that fails a gate costs no more; put cheap gates first. All other parts are
            asked at once.
        floor: reward of a response that fails a gate.
        low, high: bounds of the sum.
        length: a penalty on length, added before the bounds.
    """

    parts: tuple[Part, ...]
    floor: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    length: LengthShaping | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a composition needs parts")
        repeated = [n for n, c in Counter(part.label for part in self.parts).items() if c > 1]
        if repeated:
            raise ValueError(f"two parts are called {repeated[0]!r}; give one a label")
        if not self.low < self.high:
            raise ValueError(f"the sum is bounded by {self.low:g} and {self.high:g}")
        if not math.isfinite(self.floor):
            raise ValueError(f"the floor must be finite, got {self.floor!r}")

    @property
    def by_group(self) -> bool:
        """Whether a part is normalised over the group."""
        return any(part.normalise for part in self.parts)


def load_composition(path: str | Path) -> Composition:
    """Read a composition from a TOML file.

    Raises:
        ConfigError: the file cannot be read or used; the message says why.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return msgspec.convert(data, Composition)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} is not a composition of rewards: {error}") from None


def composed(
    file: str = "",
    *,
    composition: Composition | None = None,
    verifiers: Mapping[str, Verifier] | None = None,
) -> ComposedVerifier:
    """Make the verifier of a composition.

    Args:
        file: the path of a TOML file.
        composition: the composition itself, instead of a file.
        verifiers: verifiers that exist already, by the label of their part; those of the other
            parts are made by the registry.

    Raises:
        ConfigError: neither or both of file and composition are given, or a verifier cannot be
            made.
        UnknownVerifier: a part names a verifier that the registry does not have.
    """
    if bool(file) is (composition is not None):
        raise ConfigError(
            "a composition is either read from a file (file=reward.toml) or passed as an object; "
            f"{'both were' if file else 'neither was'} given; give one"
        )
    loaded = composition or load_composition(file)
    known_verifiers = dict(verifiers or {})
    for part in loaded.parts:
        if part.label not in known_verifiers:
            name, options = parse_served(part.name)
            known_verifiers[part.label] = make_verifier(name, **options)
    grouped = loaded.by_group or any(isinstance(v, GroupVerifier) for v in known_verifiers.values())
    return (
        ComposedGroupVerifier(loaded, known_verifiers)
        if grouped
        else ComposedVerifier(loaded, known_verifiers)
    )


class ComposedVerifier:
    """Scores with several verifiers; a part that fails makes the whole a failure, because half a
    reward would be a wrong reward.
    """

    never_blocks = False

    def __init__(self, composition: Composition, verifiers: Mapping[str, Verifier]) -> None:
        self.composition = composition
        self.verifiers = verifiers

    @property
    def judges(self) -> list[KnownJudge]:
        """Return the models that the parts ask, with their measured errors."""
        return [judge for verifier in self.verifiers.values() for judge in judges_of(verifier)]

    async def score(self, sample: Sample) -> Verdict:
        """Score an answer by all parts."""
        return (await _score_all(self.composition, self.verifiers, [sample]))[0]

    def use_policy(self, policy: PolicyText) -> None:
        """Hand the policy in training to the parts that score with it."""
        for verifier in self.verifiers.values():
            if isinstance(verifier, ReadsPolicy):
                verifier.use_policy(policy)

    async def close(self) -> None:
        """Release what the parts hold, also where one of them cannot."""
        async with AsyncExitStack() as parts:
            for verifier in self.verifiers.values():
                parts.push_async_callback(_close, verifier)


async def _close(verifier: Verifier) -> None:
    close = getattr(verifier, "close", None)
    closing = close() if callable(close) else None
    if inspect.isawaitable(closing):
        await closing


class ComposedGroupVerifier(ComposedVerifier):
    """A composition in which a part looks at the whole group."""

    async def score(self, sample: Sample) -> Verdict:
        """Refuse: a part compares the answers of a group."""
        return Verdict.invalid("this composition looks at whole groups; use score_group")

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score the answers of a group by all parts."""
        return await _score_all(self.composition, self.verifiers, samples)


async def _score_all(
    composition: Composition, verifiers: Mapping[str, Verifier], samples: Sequence[Sample]
) -> list[Verdict]:
    label_verdicts: list[dict[str, Verdict]] = [{} for _ in samples]
    for part in (part for part in composition.parts if part.gate):
        remaining = [
            n for n, verdicts in enumerate(label_verdicts) if _can_matter(composition, verdicts)
        ]
        await _ask(part, verifiers[part.label], samples, remaining, label_verdicts)
    remaining = [
        n for n, verdicts in enumerate(label_verdicts) if _can_matter(composition, verdicts)
    ]
    await asyncio.gather(
        *(
            _ask(part, verifiers[part.label], samples, remaining, label_verdicts)
            for part in composition.parts
            if not part.gate
        )
    )
    values = _normalised(composition, label_verdicts)
    return [
        _summed(composition, verdicts, value, sample.text)
        for verdicts, value, sample in zip(label_verdicts, values, samples, strict=True)
    ]


def _can_matter(composition: Composition, verdicts: Mapping[str, Verdict]) -> bool:
    """Return whether further parts can matter: no verifier failed, and no gate is shut."""
    gates = {part.label: part for part in composition.parts if part.gate}
    return all(
        verdict.reward is not None and (label not in gates or _passes(gates[label], verdict.reward))
        for label, verdict in verdicts.items()
    )


def _passes(gate: Part, reward: float) -> bool:
    return reward >= gate.at_least


async def _ask(
    part: Part,
    verifier: Verifier,
    samples: Sequence[Sample],
    numbers: Sequence[int],
    label_verdicts: Sequence[dict[str, Verdict]],
) -> None:
    verdicts: Sequence[object]
    if isinstance(verifier, GroupVerifier) and numbers:
        heard = [samples[n].heard_by(verifier) for n in numbers]
        group_scoring = await _asked(part, lambda: verifier.score_group(heard))
        verdicts = one_each(group_scoring, len(numbers))
    else:
        verdicts = await asyncio.gather(
            *(_score_sample(part, verifier, samples[n]) for n in numbers)
        )
    for number, verdict in zip(numbers, verdicts, strict=True):
        label_verdicts[number][part.label] = usable(part.label, verdict)


async def _score_sample(part: Part, verifier: Verifier, sample: Sample) -> object:
    # A synchronous verifier that may block runs in a thread, to keep the event loop free.
    heard = sample.heard_by(verifier)
    light = getattr(verifier, "never_blocks", False) or inspect.iscoroutinefunction(verifier.score)
    if light:
        return await _asked(part, lambda: verifier.score(heard))
    return await _asked(part, lambda: asyncio.to_thread(verifier.score, heard))


async def _asked(part: Part, ask: Callable[[], object]) -> object:
    """Return what a verifier gave; an exception is the verdict of this answer, and no other's."""
    try:
        with failing_where_given_up():
            given = ask()
            while inspect.isawaitable(given):  # a thread may return what is to be awaited here
                given = await given
    except Exception as error:
        if is_bug(error):
            logger.exception("the part %s failed", part.label)
        return failed(part.label, error)
    return given


def _normalised(
    composition: Composition, label_verdicts: Sequence[Mapping[str, Verdict]]
) -> list[dict[str, float]]:
    """Return the value of each part for each answer: bounded, then normalised over the answers that
    have a value.
    """
    values: list[dict[str, float]] = [{} for _ in label_verdicts]
    for part in composition.parts:
        have = {
            n: min(part.high, max(part.low, verdicts[part.label].unwrap()))
            for n, verdicts in enumerate(label_verdicts)
            if part.label in verdicts and verdicts[part.label].ok
        }
        for n, value in zip(have, over_group(part.normalise, list(have.values())), strict=True):
            values[n][part.label] = value
    return values


def over_group(normalisation: Normalisation, values: Sequence[float]) -> list[float]:
    """Normalise the `values` of a part over the group.

    >>> over_group("rank", [3.0, 1.0, 3.0])
    [0.75, 0.0, 0.75]
    """
    if not normalisation or not values:
        return list(values)
    if normalisation == "rank":
        top = max(1, len(values) - 1)
        below = [sum(value < v for value in values) for v in values]
        equal = [sum(value == v for value in values) - 1 for v in values]
        return [(b + e / 2) / top for b, e in zip(below, equal, strict=True)]
    mean = statistics.fmean(values)
    scale = statistics.pstdev(values) if normalisation == "zscore" else 1.0
    return [(v - mean) / scale if scale else 0.0 for v in values]


def _summed(
    composition: Composition,
    verdicts: Mapping[str, Verdict],
    values: Mapping[str, float],
    text: str,
) -> Verdict:
    failed = next(((label, v) for label, v in verdicts.items() if not v.ok), None)
    if failed is not None:
        label, verdict = failed
        return msgspec.structs.replace(verdict, detail=f"{label}: {verdict.detail}")
    weights = {part.label: part.weight for part in composition.parts}
    parts = {label: (value, weights[label]) for label, value in values.items()}
    metrics = {
        f"{label}/{name}": number
        for label, verdict in verdicts.items()
        for name, number in verdict.metrics.items()
    }
    shut = next(
        (
            part
            for part in composition.parts
            if part.gate and part.label in verdicts
            and not _passes(part, verdicts[part.label].unwrap())
        ),
        None,
    )  # fmt: skip
    if shut is not None:
        reason = f"the gate {shut.label!r} is shut: {verdicts[shut.label].detail}"
        return Verdict.of(composition.floor, reason, parts=parts, metrics=metrics)
    if composition.length is not None:
        parts["length"] = (composition.length.of(text), 1.0)
    total = math.fsum(value * weight for value, weight in parts.values())
    detail = "; ".join(f"{label}: {v.detail}" for label, v in verdicts.items() if v.detail)
    return Verdict.of(
        min(composition.high, max(composition.low, total)),
        detail,
        parts=parts,
        metrics=metrics,
        turn_rewards=_turn_rewards(verdicts, values, weights),
    )


def _turn_rewards(
    verdicts: Mapping[str, Verdict], values: Mapping[str, float], weights: Mapping[str, float]
) -> list[float]:
    """Return the rewards of the turns, added over all parts. A part whose reward was bounded or
    normalised counts for the whole response, because the difference cannot be assigned to a turn.
    """
    turn_rewards = {
        label: verdict.turn_rewards
        for label, verdict in verdicts.items()
        if verdict.turn_rewards and values[label] == verdict.reward
    }
    if len({len(rewards) for rewards in turn_rewards.values()}) != 1:
        return []  # No part credits turns, or two parts count a different number of turns.
    return [
        math.fsum(weights[label] * earned for label, earned in zip(turn_rewards, turn, strict=True))
        for turn in zip(*turn_rewards.values(), strict=True)
    ]
