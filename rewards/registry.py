"""Verifiers by name.

A name comes from the decorator, from the table of those ludus ships, or from another package's
entry point:

    [project.entry-points."ludus.verifiers"]
    "me/exact" = "my_package.exact:exact"
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from ludus.arguments import check_plain, options_of
from ludus.errors import ConfigError, InvalidScore, LudusError, UnknownVerifier
from ludus.offered import load_offered, offered_names
from ludus.verdict import Verdict

from .protocol import BatchVerifier, Sample, Verifier

ENTRY_POINT_GROUP = "ludus.verifiers"

Scored = Verdict | float | bool
ScoreFunction = Callable[[Sample], Scored | Awaitable[Scored]]
VerifierFactory = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

BUILTIN: dict[str, str] = {
    "coding": "ludus.rewards.coding:CodingVerifier",
    "maths": "ludus.rewards.maths:MathsVerifier",
    "exact": "ludus.rewards.exact:exact",
    "evolving-rubric": "ludus.rewards.judge.evolving:EvolvingJudge",
    "compose": "ludus.rewards.compose:composed",
    "judge": "ludus.rewards.judge:RubricJudge",
    "preference": "ludus.rewards.judge:PreferenceJudge",
    "image-reward": "ludus.rewards.learned.images.named:ImageRewardVerifier",
    "clip-score": "ludus.rewards.learned.images.named:ClipScoreVerifier",
    "pick-score": "ludus.rewards.learned.images.named:PickScoreVerifier",
    "hps-v2": "ludus.rewards.learned.images.named:HpsV2Verifier",
    "aesthetic-score": "ludus.rewards.learned.images.named:AestheticVerifier",
    "vision-judge": "ludus.rewards.learned.images.vision_judge:VisionJudge",
    "generative-reward": "ludus.rewards.learned.text.generative:GenerativeReward",
    "probability-reward": "ludus.rewards.learned.text.probability:ProbabilityReward",
    "process-reward": "ludus.rewards.learned.text.process_reward:ProcessRewardModel",
    "ranking-agreement": "ludus.rewards.learned.text.self_grading:RankingAgreement",
    "reward-model": "ludus.rewards.learned.text.reward_model:RewardModel",
    "self-aligned-reward": "ludus.rewards.learned.text.probability:SelfAlignedReward",
    "self-grading": "ludus.rewards.learned.text.self_grading:SelfGrading",
}
"""name -> "module:attribute"; imported when first asked for."""

_registered: dict[str, VerifierFactory] = {}


class FunctionVerifier:
    """A plain function as a verifier. A number or a bool becomes an ok verdict."""

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.never_blocks = never_blocks(function)

    def score(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Call the score function."""
        scored = self.function(sample)
        name = _name_of(self.function)
        return (
            _await_score(scored, name) if inspect.isawaitable(scored) else as_verdict(scored, name)
        )


async def _await_score(scored: Awaitable[Scored], name: str) -> Verdict:
    return as_verdict(await scored, name)


def as_verdict(scored: object, name: str = "a verifier") -> Verdict:
    """Read what the verifier function `name` returned.

    Raises:
        InvalidScore: the function returned neither a verdict nor a number.

    >>> as_verdict(True).reward
    1.0
    """
    if isinstance(scored, Verdict):
        return scored
    if isinstance(scored, (bool, int, float)):
        return Verdict.of(float(scored))
    raise InvalidScore(
        f"{name} must return a Verdict, a number or a bool, got {type(scored).__name__}: "
        f"{scored!r:.80}"
    )


def verifier(name: str) -> Callable[[Decorated], Decorated]:
    """Register a function or class as the verifier `name`.

    Raises:
        ConfigError: the name is malformed, or taken by something else.
    """

    def decorate(target: Decorated) -> Decorated:
        register_verifier(name, target)
        return target

    return decorate


def register_verifier(name: str, target: VerifierFactory) -> None:
    """Register `target` (a score function, or a class or factory that makes a verifier) under
    `name`.

    Raises:
        ConfigError: the name is malformed, or taken by something else.
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(
        part.replace("-", "").replace("_", "").isalnum() for part in parts
    ):
        raise ConfigError(
            f"verifier name {name!r} is not 'name' or 'owner/name' of letters, digits, - and _"
        )
    if parts[-1].rpartition("-v")[2].isdigit() and "-v" in parts[-1]:
        raise ConfigError(
            f"verifier name {name!r} ends in -vN, which names an environment; drop the version"
        )
    # Nothing is imported to compare with the verifier that ludus ships under this name: if `target`
    # is that verifier, its module has been imported.
    module, _, attribute = BUILTIN.get(name, "").partition(":")
    if name in BUILTIN and getattr(sys.modules.get(module), attribute, None) is not target:
        raise ConfigError(
            f"verifier {name!r} is one ludus ships ({BUILTIN[name]}); register "
            f"{_origin(target)} under another name"
        )
    present = _registered.get(name)
    if present is not None and _origin(present) != _origin(target):
        raise ConfigError(
            f"verifier {name!r} is already registered by {_origin(present)}; register "
            f"{_origin(target)} under another name"
        )
    _registered[name] = target


def verifier_names() -> list[str]:
    """Return all names: shipped, registered, and offered by installed packages."""
    return sorted({*BUILTIN, *_registered, *offered_names(ENTRY_POINT_GROUP)})


def make_verifier(name: str, **options: Any) -> Verifier:
    """Build the verifier `name`.

    Raises:
        UnknownVerifier: nothing has this name; the message suggests a similar name.
        ConfigError: the verifier does not take these options.
    """
    return build_verifier(name, find_verifier(name), options)


def build_verifier(name: str, target: VerifierFactory, options: dict[str, Any]) -> Verifier:
    """Build the verifier behind `target`, which is called `name`.

    Raises:
        ConfigError: the target does not take these options, or does not make a verifier.
    """
    check_plain(name, target, options)
    if inspect.isclass(target) or options or _takes_nothing(target):
        try:
            built = target(**options)
        except TypeError as error:
            known = ", ".join(sorted(options_of(target))) or "none"
            raise ConfigError(
                f"verifier {name!r} does not take these options {options!r}: {error}; it takes: "
                f"{known}"
            ) from error
        except ValueError as error:
            # A constructor raises ValueError about the value of an option. An error of ludus has a
            # good message already, and without options the value cannot be the caller's.
            if isinstance(error, LudusError) or not options:
                raise
            raise ConfigError(
                f"verifier {name!r} cannot be made with {options!r}: {error}"
            ) from error
        return as_verifier(name, built)
    return as_verifier(name, target)


def never_blocks(target: object) -> bool:
    """Return whether a verifier or its factory declares that it never blocks."""
    return bool(getattr(target, "never_blocks", False))


def _takes_nothing(target: VerifierFactory) -> bool:
    """Return whether `target` can be called without arguments, as a factory can and a score
    function cannot.
    """
    try:
        inspect.signature(target).bind()
    except (TypeError, ValueError):
        return False
    return True


def as_verifier(name: str, candidate: object) -> Verifier:
    """Read `candidate` (a verifier, a `BatchVerifier` or a score function) as the verifier `name`.

    Raises:
        ConfigError: the candidate is none of these.
    """
    if isinstance(candidate, Verifier):
        return candidate
    if isinstance(candidate, BatchVerifier):
        from .learned.batching import Batched  # imported late: that module imports this one

        return Batched(candidate, name)
    if callable(candidate):
        function = cast("ScoreFunction", candidate)
        try:
            inspect.signature(function).bind(Sample(response=""))
        except TypeError as error:
            example = f"def {_name_of(function)}(sample)"
            raise ConfigError(
                f"verifier {name!r} must take one Sample, such as {example}: {error}"
            ) from None
        except ValueError:
            pass  # A builtin without a signature can only be tried, when it is called.
        return FunctionVerifier(function)
    raise ConfigError(
        f"verifier {name!r} is neither a function of one Sample nor has a method score(sample) or "
        f"score_batch(samples): "
        f"{candidate!r:.80}"
    )


def _name_of(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def find_verifier(name: str) -> VerifierFactory:
    """Return the function or class behind `name`.

    Raises:
        UnknownVerifier: nothing has this name; the message suggests a similar name.
        ConfigError: the package that offers the verifier cannot be imported, or two packages offer
            a verifier of this name.
    """
    if name in _registered:
        return _registered[name]
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        factory: VerifierFactory = getattr(import_module(module), attribute)
        return factory
    offered_factory: VerifierFactory | None = load_offered(ENTRY_POINT_GROUP, name)
    if offered_factory is not None:
        return offered_factory
    raise UnknownVerifier.near(
        name, verifier_names(), hint="ludus list; a file of yours is named by --import"
    )


def _origin(target: VerifierFactory) -> str:
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', '?')}"
