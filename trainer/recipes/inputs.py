"""What the functions of a recipe may read: a typed struct of tensors.

A function of `ludus.trainer.algorithms` takes tensors by the names of its parameters. Those names
are the fields of `Inputs`, and each field says here, and nowhere else, how many values it has
(`Axis`), in which places of a recipe a function may ask for it (`Place`), and what a trainer needs
in order to make it (`Made`).

A trainer that has more to offer derives a struct, and its functions may ask for the new names:

    @dataclass(frozen=True, kw_only=True, eq=False)
    class TreeInputs(Inputs):
        parents: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (Place.ADVANTAGE,))] = None
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from typing import Annotated, Self, get_args, get_type_hints

from torch import Tensor

from ludus.errors import ConfigError


class Axis(Enum):
    """How many values a tensor has."""

    ROLLOUT = "[N], one per rollout; in a loss [B], repeated for each row of the rollout"
    ROW = "[B], one per row"
    TOKEN = "[B, T], one per token"
    NODE = "[M], one per node of the trees"


class Place(StrEnum):
    """The places of a recipe that name functions, in the order of the calls."""

    SHAPING = "shaping"
    FILTER = "sampling.filter"
    ADVANTAGE = "algorithm.advantage"
    CORRECTIONS = "algorithm.corrections"
    LOSS = "algorithm.loss"


class Made(Enum):
    """What a trainer needs in order to make a tensor."""

    ALWAYS = "every trainer has it, or the recipe computes it"
    ON_DEMAND = "computed where a recipe asks for it"
    VALUE_HEAD = "needs a value head"
    TRACKER = "needs success rates tracked per task"
    POLICY = "needs a rule of sampling that gives it"


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a field of `Inputs`: the axis, the places that may read the field, and the
    origin.
    """

    axis: Axis
    places: tuple[Place, ...] = ()
    """Where a function may require it; without any, only the trainer reads it, or a function that
    takes it if given.
    """
    made: Made = Made.ALWAYS


_EVERYWHERE = tuple(Place)
_POLICY = Place.CORRECTIONS, Place.LOSS
_KNOWN_BEFORE = Place.ADVANTAGE, Place.CORRECTIONS, Place.LOSS


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Tensors of N rollouts, cut into B rows of T tokens; a field that is None was not given."""

    rewards: Annotated[Tensor | None, Declared(Axis.ROLLOUT, _EVERYWHERE)] = None
    """Rewards; shaped ones after the shaping, except in corrections."""
    groups: Annotated[Tensor | None, Declared(Axis.ROLLOUT, _EVERYWHERE)] = None
    """Int, the group of each rollout."""
    environments: Annotated[Tensor | None, Declared(Axis.ROLLOUT)] = None
    """Int, the environment of each rollout, in a run with several; statistics over the batch are
    taken within each.
    """
    lengths: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING, Place.ADVANTAGE))] = (
        None
    )
    """Trained tokens, over all rows."""
    truncated: Annotated[
        Tensor | None,
        Declared(Axis.ROLLOUT, (Place.SHAPING, Place.ADVANTAGE, Place.CORRECTIONS), Made.ON_DEMAND),
    ] = None
    """Bool: whether a limit ended the rollout."""
    turn_counts: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,))] = None
    """Int, the turns of each rollout."""
    correct: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING, Place.ADVANTAGE, Place.LOSS))
    ] = None
    """1 where the task is solved; rewards > 0 where not given."""
    bootstrap: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.ADVANTAGE,), Made.VALUE_HEAD)
    ] = None
    """The value of the state that a limit ended the rollout in; 0 elsewhere."""
    alpha: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (Place.ADVANTAGE,), Made.TRACKER)] = None
    """Successes of the task, as the first parameter of a Beta posterior."""
    beta: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (Place.ADVANTAGE,), Made.TRACKER)] = None
    """Failures of the task, as the second parameter of a Beta posterior."""
    target: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING, Place.ADVANTAGE), Made.POLICY)
    ] = None
    """The length in tokens that was asked of each rollout."""
    shortest: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING, Place.ADVANTAGE), Made.POLICY)
    ] = None
    """The length of the task's shortest right answer before the rollout was issued; NaN where there
    was none.
    """
    leaves: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (), Made.POLICY)] = None
    """Int, the node in which each rollout of a tree ended."""
    parents: Annotated[Tensor | None, Declared(Axis.NODE, (Place.ADVANTAGE,), Made.POLICY)] = None
    """Int, the node above each node of the trees of a step; -1 above a task's own. An estimator
    that asks for it is given `rewards` of nodes, 0 but at leaves, and returns one number for each.
    """
    continuations: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.ADVANTAGE,), Made.POLICY)
    ] = None
    """Bool: the rollouts that were played for the value of the state they began in. An estimator of
    nodes is given one for each node.
    """
    answer_probabilities: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,), Made.ON_DEMAND)
    ] = None
    """[N, A]: of the tokens of the task's answer behind each rollout's thoughts."""
    prior_probabilities: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,), Made.ON_DEMAND)
    ] = None
    """[N, A]: of the same tokens behind the task alone."""
    answer_mask: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,), Made.ON_DEMAND)
    ] = None
    """[N, A] in {0, 1}: the tokens that each answer has."""
    conditional_perplexity: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,), Made.ON_DEMAND)
    ] = None
    """Perplexity of each rollout's own answer behind the task alone."""
    answer_perplexity: Annotated[
        Tensor | None, Declared(Axis.ROLLOUT, (Place.SHAPING,), Made.ON_DEMAND)
    ] = None
    """Perplexity of each rollout's own answer behind nothing."""
    granted: Annotated[Tensor | None, Declared(Axis.ROLLOUT)] = None
    """The advantage of rollouts that stand beside their group and count in no baseline; NaN of all
    others.
    """
    greedy_rewards: Annotated[Tensor | None, Declared(Axis.ROLLOUT, (), Made.ON_DEMAND)] = None
    """Rewards of a greedy rollout of the same task."""

    rollouts: Annotated[Tensor | None, Declared(Axis.ROW, _KNOWN_BEFORE)] = None
    """Int, the rollout (0..N-1) of each row: its owner. In a loss any numbers that tell rollouts
    apart; not given there, every row is a rollout of its own. A function sees rollouts as one row
    each, however they are stored; one that asks for this field counts segments on purpose, and sees
    the rows.
    """
    segments: Annotated[Tensor | None, Declared(Axis.ROW, (Place.ADVANTAGE,))] = None
    """Int, the number of each row's rollout among those that count in the statistics."""
    prompt_tokens: Annotated[Tensor | None, Declared(Axis.ROW)] = None
    """Trained tokens of the row's group in the whole batch, for a mean by prompt."""
    rollout_tokens: Annotated[Tensor | None, Declared(Axis.ROW)] = None
    """Trained tokens of the row's rollout in the whole batch; counted from the rows of a call when
    not given.
    """
    rollout_rows: Annotated[Tensor | None, Declared(Axis.ROW)] = None
    """Rows of the row's rollout in the whole batch; counted like `rollout_tokens`."""
    rollout_values: Annotated[Tensor | None, Declared(Axis.ROW)] = None
    """Like `rollout_tokens`, of the tokens at which the value head is trained."""

    mask: Annotated[Tensor | None, Declared(Axis.TOKEN, _KNOWN_BEFORE)] = None
    """In {0, 1}: the tokens that are trained."""
    logp: Annotated[Tensor | None, Declared(Axis.TOKEN, _POLICY)] = None
    """Log-probabilities of the policy, in nats; in corrections those of the old policy."""
    old_logp: Annotated[Tensor | None, Declared(Axis.TOKEN, _KNOWN_BEFORE, Made.ON_DEMAND)] = None
    """Log-probabilities of the policy before the step's first update."""
    proxy_logp: Annotated[Tensor | None, Declared(Axis.TOKEN, _POLICY, Made.ON_DEMAND)] = None
    """Log-probabilities of the old policy without its unlikely tokens, renormalised
    (`algorithm.proxy_ratio`); far below any other where the token itself is one of these.
    """
    ref_logp: Annotated[Tensor | None, Declared(Axis.TOKEN, _KNOWN_BEFORE, Made.ON_DEMAND)] = None
    """Log-probabilities of the reference policy."""
    sampler_logp: Annotated[Tensor | None, Declared(Axis.TOKEN, _POLICY, Made.ON_DEMAND)] = None
    """Log-probabilities that the engine sampled with."""
    entropy: Annotated[Tensor | None, Declared(Axis.TOKEN, _POLICY, Made.ON_DEMAND)] = None
    """Entropies of the policy, in nats; in corrections those of the old policy."""
    advantages: Annotated[Tensor | None, Declared(Axis.TOKEN, _POLICY)] = None
    """Credit, as the recipe's estimator assigns it."""
    turn_rewards: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,))] = None
    """Each turn's reward on the turn's last trained token, 0 elsewhere and when not given."""
    nodes: Annotated[Tensor | None, Declared(Axis.TOKEN, (), Made.POLICY)] = None
    """Int, the node of each sampled token of a tree; -1 elsewhere."""
    turns: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,))] = None
    """Int, the turn of each trained token, counted over the rows of a rollout."""
    anchors: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,))] = None
    """Int, a number for the observation before the turn of each trained token: equal where two
    turns read the same.
    """
    token_rewards: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,))] = None
    """The reward of every token; made from rewards and turn rewards when not given."""
    proxies: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,), Made.ON_DEMAND)] = (
        None
    )
    """Squared norms of the score with respect to the logits."""
    values: Annotated[Tensor | None, Declared(Axis.TOKEN, (Place.ADVANTAGE,), Made.VALUE_HEAD)] = (
        None
    )
    """The value head's estimate of the state before each token."""
    old_values: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Values before the step's first update."""
    returns: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Targets of the value head."""
    value_mask: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """In {0, 1}: the tokens at which the value head is trained; every trained one when not
    given.
    """
    weights: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Weights of the corrections; 1 everywhere when not given."""
    marked: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Bool: the tokens that a loss treats apart, chosen over the whole batch."""
    selected: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Bool: the unlikely tokens that a loss protects, chosen over the whole batch."""
    losses: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """What an aggregation sums up, made by the loss."""
    scale: Annotated[Tensor | None, Declared(Axis.TOKEN)] = None
    """Factors of a loss that compares all tokens of the batch."""

    def given(self) -> dict[str, Tensor]:
        """Return the tensors that were given, by name."""
        by_name = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in by_name.items() if value is not None}

    def each(self, change: Callable[[Tensor], Tensor], *axes: Axis) -> Self:
        """Return the struct with `change` applied to the tensors on `axes`, or to all."""
        chosen = self.given()
        if axes:
            declared = declarations(type(self))
            chosen = {name: value for name, value in chosen.items() if declared[name].axis in axes}
        return replace(self, **{name: change(value) for name, value in chosen.items()})

    def only(self, axis: Axis) -> Self:
        """Return the struct without the tensors on other axes."""
        declared = declarations(type(self))
        others = [name for name in self.given() if declared[name].axis is not axis]
        return replace(self, **dict.fromkeys(others))

    def by_row(self, rollouts: Tensor) -> Self:
        """Return the struct with the values of rollouts repeated for each row of the rollout.

        Args:
            rollouts: [B] int, the rollout of each row.
        """
        return self.each(lambda value: value[rollouts], Axis.ROLLOUT)


_DECLARED: dict[type[Inputs], dict[str, Declared]] = {}
"""What was read from the hints of a struct, which takes longer than a look-up."""


def declarations(struct: type[Inputs] = Inputs) -> dict[str, Declared]:
    """Return what each field of a struct is declared to be."""
    if struct not in _DECLARED:
        _DECLARED[struct] = {
            name: extra
            for name, hint in get_type_hints(struct, include_extras=True).items()
            for extra in get_args(hint)[1:]
            if isinstance(extra, Declared)
        }
    return _DECLARED[struct]


def offered(place: Place, struct: type[Inputs] = Inputs) -> frozenset[str]:
    """Return the names that a function in `place` may require.

    >>> sorted(offered(Place.FILTER))
    ['groups', 'rewards']
    """
    return frozenset(
        name for name, declared in declarations(struct).items() if place in declared.places
    )


def made_by(*ways: Made, struct: type[Inputs] = Inputs) -> frozenset[str]:
    """Return the names that some place offers and that are made in any of `ways`.

    >>> sorted(made_by(Made.TRACKER))
    ['alpha', 'beta']
    """
    return frozenset(
        name
        for name, declared in declarations(struct).items()
        if declared.made in ways and declared.places
    )


def need(value: Tensor | None, name: str, where: str) -> Tensor:
    """Return a tensor that must have been given.

    Args:
        value: the tensor, or None.
        name: the name of the field, for the message.
        where: what needs it: a place of the recipe.

    Raises:
        ConfigError: the tensor is missing, although `where` needs it.
    """
    if value is None:
        raise ConfigError(f"{where} needs {name}, which was not given")
    return value
