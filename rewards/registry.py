"""Verifiers by name.

A name comes from the decorator, from the table of those ludus ships, or from another package's
entry point:

    [project.entry-points."ludus.verifiers"]
    "me/exact" = "my_package.exact:exact"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ludus.errors import ConfigError, UnknownVerifier
from ludus.registry import HINT, Description, Registry, Shipped, check_plain, make

from .learned.batching import Batched
from .protocol import BatchVerifier, FunctionVerifier, Sample, ScoreFunction, Verifier, name_of

VerifierFactory = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

BUILTIN: dict[str, Shipped] = {
    "coding": Shipped(
        "ludus.rewards.coding:CodingVerifier",
        "Grades the last block of code in a response by hidden tests",
    ),
    "maths": Shipped("ludus.rewards.maths:MathsVerifier", "Checks final answers in mathematics"),
    "exact": Shipped(
        "ludus.rewards.exact:exact",
        "1 if the response equals the gold up to case and white space, else 0",
    ),
    "overlap": Shipped(
        "ludus.rewards.overlap:OverlapVerifier",
        "How much of a reference a response has: ROUGE-L, BLEU, chrF or keywords",
    ),
    "target-length": Shipped(
        "ludus.rewards.overlap:TargetLengthVerifier",
        "Whether a response has a target number of words",
    ),
    "evolving-rubric": Shipped(
        "ludus.rewards.judge.evolving:EvolvingJudge",
        "Scores groups by a rubric that changes with what the policy does",
    ),
    "compose": Shipped("ludus.rewards.compose:composed", "Composes verifiers, as a file says"),
    "judge": Shipped(
        "ludus.rewards.judge:RubricJudge",
        "Scores a response by a rubric that a language model reads",
    ),
    "preference": Shipped(
        "ludus.rewards.judge:PreferenceJudge",
        "Compares the answers of a group; a reward is a share of wins",
    ),
    "image-reward": Shipped(
        "ludus.rewards.learned.images.named:ImageRewardVerifier",
        "ImageReward: how much people would prefer an image for a prompt, about -2 to 2",
        extra="image",
    ),
    "clip-score": Shipped(
        "ludus.rewards.learned.images.named:ClipScoreVerifier",
        "CLIPScore: the cosine of image and prompt under CLIP, or with `scaled` 2.5 max(cosine, 0)",
        extra="image",
    ),
    "pick-score": Shipped(
        "ludus.rewards.learned.images.named:PickScoreVerifier",
        "PickScore: preference of people for an image, by a CLIP ViT-H/14 trained on Pick-a-Pic",
        extra="image",
    ),
    "hps-v2": Shipped(
        "ludus.rewards.learned.images.named:HpsV2Verifier",
        "HPSv2 or HPSv2.1: preference of people for an image, by a CLIP ViT-H/14",
        extra="image",
    ),
    "aesthetic-score": Shipped(
        "ludus.rewards.learned.images.named:AestheticVerifier",
        "LAION's aesthetic predictor, version 2: how an image looks, from 1 to 10; reads no prompt",
        extra="image",
    ),
    "vision-judge": Shipped(
        "ludus.rewards.learned.images.vision_judge:VisionJudge",
        "Scores an image by a rubric that a vision model reads, over an OpenAI-compatible server",
        extra="image",
    ),
    "generative-reward": Shipped(
        "ludus.rewards.learned.text.generative:GenerativeReward",
        "Scores responses by judgements that a model writes",
    ),
    "probability-reward": Shipped(
        "ludus.rewards.learned.text.probability:ProbabilityReward",
        "Scores how probable the reference is after the policy's reasoning (RLPR)",
    ),
    "process-reward": Shipped(
        "ludus.rewards.learned.text.process_reward:ProcessRewardModel",
        "Scores every step of a response with a trained process reward model",
        extra="train",
    ),
    "ranking-agreement": Shipped(
        "ludus.rewards.learned.text.self_grading:RankingAgreement",
        "Scores a judgement by Kendall's tau with the true ranking (URPO)",
    ),
    "reward-model": Shipped(
        "ludus.rewards.learned.text.reward_model:RewardModel",
        "Scores responses with a trained scalar reward model",
        extra="train",
    ),
    "self-aligned-reward": Shipped(
        "ludus.rewards.learned.text.probability:SelfAlignedReward",
        "Scores by how much the question lowers the response's perplexity (SAR)",
    ),
    "self-grading": Shipped(
        "ludus.rewards.learned.text.self_grading:SelfGrading",
        "Has the policy itself score the answers of a group against each other (URPO)",
    ),
}
"""The verifiers ludus ships, by name."""

_VERIFIERS: Registry[VerifierFactory] = Registry(
    "verifier", BUILTIN, group="ludus.verifiers", unknown=UnknownVerifier, hint=HINT
)


def verifier(name: str) -> Callable[[Decorated], Decorated]:
    """Register a function or class as the verifier `name`.

    Raises:
        ConfigError: the name is malformed, or taken by something else.
    """
    if not isinstance(name, str):  # `@verifier` without a name hands in the function
        raise ConfigError(f"verifier takes a name, @ludus.verifier('me/exact'), got {name!r:.80}")

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
    _VERIFIERS.check_free(name, target)
    _VERIFIERS.registered[name] = target


def verifier_names() -> list[str]:
    """Return all names: shipped, registered, and offered by installed packages."""
    return _VERIFIERS.names()


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
        ConstructionFailed: the target failed for another reason.
    """
    check_plain(name, target, options)
    if inspect.isclass(target) or options or _takes_nothing(target):
        return as_verifier(name, make(name, target, options, kind="verifier"))
    return as_verifier(name, target)


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
        return Batched(candidate, name)
    if callable(candidate):
        function = cast("ScoreFunction", candidate)
        try:
            inspect.signature(function).bind(Sample(response=""))
        except TypeError as error:
            example = f"def {name_of(function)}(sample)"
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


def find_verifier(name: str) -> VerifierFactory:
    """Return the function or class behind `name`.

    Raises:
        UnknownVerifier: nothing has this name; the message suggests a similar name.
        ConfigError: the package that offers the verifier cannot be imported, or two packages offer
            a verifier of this name.
    """
    return _VERIFIERS.find(name)


def describe_verifiers() -> list[Description]:
    """Describe all verifiers by name; those that ludus ships are not imported."""
    return _VERIFIERS.descriptions()
