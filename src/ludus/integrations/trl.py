"""ludus environments and verifiers for TRL's `GRPOTrainer` and `AsyncGRPOTrainer`.

    bridge = TrlBridge("ludus/arithmetic-v0")
    trainer = GRPOTrainer(
        model=model,
        train_dataset=bridge.dataset(1000),
        environment_factory=bridge.environment_factory,
        reward_funcs=bridge.reward_funcs,
    )

TRL shows a policy every public method of an environment object as a tool. So these objects have
`reset` and the tools that the environment declares, and nothing else that is public: no `gold`, no
`demonstrate`. The reward function plays what the policy said last, and gives None, which TRL leaves
out of the baseline and the loss, for a verdict that is not ok.

`AsyncGRPOTrainer` plays in another process, and gives reward functions no environments. With
`TrlBridge(env, scored_by="environment")` these tell their rewards themselves, and a policy answers
by the tool `say`, since an environment of TRL does not learn what was said without a call.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal, Optional, Protocol, Union

import msgspec

from ludus.background import run_on_loop
from ludus.envs.protocol import TextEnv
from ludus.envs.tools.spec import ToolSpec
from ludus.errors import ConfigError
from ludus.rewards import Sample
from ludus.rewards.protocol import Verifier
from ludus.verdict import Verdict

from .bridge import BridgedEpisode, EnvBridge, peer_package, spoken
from .scoring import verdicts_of

RewardFunction = Callable[..., list[float | None]]
TAKEN = ("reset", "get_reward")
SAY = ToolSpec(
    name="say",
    description="Say something to the environment: an answer, or a move.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "what to say"}},
        "required": ["text"],
    },
)

UNHEARD = " Nothing is heard that is said without it."


class TaskTable(Protocol):
    """A `datasets.Dataset` with a row for each task."""

    @property
    def column_names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]: ...


class TrlBridge:
    """Builds the environment factory, reward functions and data set that TRL's trainers take.

    It can be pickled where `env` is an id or a class of a module: `AsyncGRPOTrainer` sends it to
    the process that plays, which opens a connection or worker processes of its own.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`, or a `TextEnv` class.
        url: the address of a `ludus serve` that offers the environment; without one the environment
            is played in worker processes of this machine.
        token: the token of that server.
        say: whether the policy gets a tool `say`. TRL goes on with an episode only after a tool
            call, so an environment of several turns that declares no tool needs one; None adds it
            there, and where environments tell their own rewards.
        scored_by: "reward_funcs", or "environment" for objects that have `get_reward`, as
            `AsyncGRPOTrainer` needs. `reward_funcs` is then empty, and what the policy says without
            a call is not played.

    Raises:
        ConfigError: a tool has a name that TRL takes for something else, or an argument that is no
            name of Python, or `say` is False where environments tell their own rewards and declare
            no tool.
        LudusError: the environment cannot be built, or the server does not offer it.
    """

    def __init__(
        self,
        env: str | type[TextEnv],
        *,
        url: str = "",
        token: str | None = None,
        say: bool | None = None,
        scored_by: Literal["reward_funcs", "environment"] = "reward_funcs",
    ) -> None:
        self._again = partial(TrlBridge, env, url=url, token=token, say=say, scored_by=scored_by)
        self._bridge = EnvBridge(env, url=url, token=token)
        self._scores_itself = scored_by == "environment"
        briefing = self._bridge.card.briefing
        if say is None:
            say = self._scores_itself or (not briefing.tools and briefing.max_turns != 1)
        if self._scores_itself and not say and not briefing.tools:
            raise ConfigError(
                f"{self._bridge.id} declares no tool: with scored_by='environment' and say=False "
                "nothing that a policy says would be heard"
            )
        said = (
            msgspec.structs.replace(SAY, description=SAY.description + UNHEARD)
            if self._scores_itself
            else SAY
        )
        declared = {tool.name for tool in briefing.tools}
        tools = [*briefing.tools, *([said] if say and SAY.name not in declared else [])]
        methods = {tool.name: _method(tool) for tool in tools}
        kind = _ScoringEnvironment if self._scores_itself else _TrlEnvironment
        self._environment = type("LudusEnvironment", (kind,), methods)

    def __reduce__(self) -> tuple[Callable[[], TrlBridge], tuple[()]]:
        return self._again, ()

    def environment_factory(self) -> object:
        """Return a new environment object; TRL keeps an object for each concurrent rollout."""
        environment: object = self._environment(self._bridge.episode())
        return environment

    @property
    def reward_funcs(self) -> list[RewardFunction]:
        """The reward function of the environment, for `GRPOTrainer`; empty where environments tell
        the reward.
        """
        return [] if self._scores_itself else [_episode_reward]

    def dataset(
        self, count: int, *, split: str = "train", offset: int = 0, seed: int = 0
    ) -> TaskTable:
        """Return a `datasets.Dataset` of tasks, with what `reset` needs to begin each.

        Args:
            count: how many tasks.
            split: the split they are of.
            offset: the index of the first.
            seed: the seed of the episodes' random numbers.

        Raises:
            MissingExtra: `datasets`, which TRL requires, is not installed.
            UnknownTask: no such split.
        """
        datasets = peer_package("datasets", "trl")
        table: TaskTable = datasets.Dataset.from_list(
            self.rows(count, split=split, offset=offset, seed=seed)
        )
        return table

    def rows(
        self, count: int, *, split: str = "train", offset: int = 0, seed: int = 0
    ) -> list[dict[str, Any]]:
        """Return the rows of `dataset` as dictionaries."""
        briefing = self._bridge.card.briefing
        instructions = "\n".join(
            part for part in (briefing.system_prompt, briefing.answer_format) if part
        )
        opening = [{"role": "system", "content": instructions}] if instructions else []
        # `reset` appends the first observation to the last message
        prompt = [*opening, {"role": "user", "content": ""}]
        return [
            {"prompt": deepcopy(prompt), "task": task.id, "split": task.split, "seed": seed}
            for task in self._bridge.tasks(split, count, offset=offset)
        ]

    def close(self) -> None:
        """Release every episode and end the worker processes."""
        self._bridge.close()


class _TrlEnvironment:
    """An environment object of TRL: tools become public methods of a subclass."""

    def __init__(self, episode: BridgedEpisode) -> None:
        self._episode = episode
        self._is_scored = False

    def reset(
        self,
        task: str | None = None,
        split: str | None = None,
        seed: int | None = None,
        **columns: Any,
    ) -> str:
        """Begin the episode of a row of the data set; returns the first observation as text."""
        self._is_scored = False
        begun = run_on_loop(
            self._episode.begin(
                task=task or None, split=None if task else split or None, seed=seed or 0
            )
        )
        return spoken([message for message in begun if message.role.value != "system"])

    def _finish(self, completion: object) -> Verdict:
        """Play what the policy said last, if the episode goes on, and return the verdict."""
        text = _last_words(completion)
        if text is not None and not self._is_scored:
            run_on_loop(self._episode.act(text))
        self._is_scored = True
        return self._episode.verdict


class _ScoringEnvironment(_TrlEnvironment):
    """An environment object that also tells the reward."""

    def get_reward(self) -> float | None:
        """Return the reward of the episode; None if the verdict is not ok."""
        return self._episode.verdict.reward


def _episode_reward(
    prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Return the reward of each episode; None for an episode without a reward."""
    environments = columns.get("environments")
    if environments is None or not all(isinstance(each, _TrlEnvironment) for each in environments):
        raise ConfigError(
            "the reward of a ludus environment needs environment_factory=bridge.environment_factory"
        )
    verdicts = [
        environment._finish(completion)  # pyright: ignore[reportPrivateUsage]
        for environment, completion in zip(environments, completions, strict=True)
    ]
    return _told(verdicts, columns)


_episode_reward.__name__ = "ludus"


def verifier_reward(
    verifier: str | Verifier, *, gold: str = "gold", info: str = "", **options: Any
) -> RewardFunction:
    """Return a reward function of TRL that asks a verifier; None for a verdict that is not ok.

    Args:
        verifier: the name of a verifier, or a verifier.
        gold: the column of the data set that holds the gold.
        info: the column that holds the verifier's further information, if it needs any.
        options: the options of a verifier that is named.
    """

    def reward(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        for name in filter(None, (gold, info)):
            if name not in columns:
                raise ConfigError(f"the data set has no column {name!r}")
        golds = columns[gold] if gold else [None] * len(completions)
        infos = columns[info] if info else [None] * len(completions)
        samples = [
            Sample(
                response=_answer(completion),
                gold=own_gold,
                info=dict(own_info or {}),
                prompt=_text_of_last(prompt),
            )
            for prompt, completion, own_gold, own_info in zip(
                prompts, completions, golds, infos, strict=True
            )
        ]
        return _told(verdicts_of(verifier, samples, **options), columns)

    reward.__name__ = verifier if isinstance(verifier, str) else type(verifier).__name__
    return reward


def _told(verdicts: Sequence[Verdict], columns: Mapping[str, Any]) -> list[float | None]:
    """Return the rewards, and let TRL log how many episodes had none."""
    log = columns.get("log_metric")
    if callable(log):
        log("ludus/excluded", sum(not verdict.ok for verdict in verdicts) / max(1, len(verdicts)))
    return [verdict.reward for verdict in verdicts]


def _last_words(completion: object) -> str | None:
    """Return the policy's last text; None if the rollout ends with a call or a tool's result."""
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not completion:
        return ""
    last = completion[-1]
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return None
    return _content(last)


def _answer(completion: object) -> str:
    """Return the text that a verifier reads: "" where a tool's result comes last, which is not what
    the policy said.
    """
    if not isinstance(completion, str) and isinstance(completion, Sequence) and completion:
        return _content(completion[-1]) if completion[-1].get("role") == "assistant" else ""
    return _text_of_last(completion)


def _text_of_last(messages: object) -> str:
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, Sequence) or not messages:
        return ""
    return _content(messages[-1])


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")


# --- tools as methods, in the form from which transformers reads schemas -------------------------


def _method(tool: ToolSpec) -> Callable[..., str]:
    """Return a method whose signature and docstring say what the tool's schema says."""
    name = tool.name
    if name in TAKEN or name.startswith("_") or not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(
            f"TRL cannot show a tool named {name!r}: its tools are public methods, and "
            f"{' and '.join(TAKEN)} are its own"
        )
    properties: dict[str, dict[str, Any]] = tool.parameters.get("properties", {})
    for argument in properties:
        if argument == "self" or not argument.isidentifier() or keyword.iskeyword(argument):
            raise ConfigError(
                f"TRL cannot show the argument {argument!r} of the tool {name!r}: an argument is a "
                "parameter of a method"
            )
    required = tool.parameters.get("required", [])

    def call(self: _TrlEnvironment, **arguments: Any) -> str:
        episode = self._episode  # pyright: ignore[reportPrivateUsage]
        if tool.name == SAY.name and all(declared.name != SAY.name for declared in episode.tools):
            answer = spoken(run_on_loop(episode.act(str(arguments.get("text", "")))))
            return answer or ("the episode is over" if episode.over else "")
        return run_on_loop(episode.call(tool.name, arguments))

    ordered = sorted(properties, key=lambda name: name not in required)
    kinds = {name: _kind(properties[name]) for name in ordered}
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kinds[name],
            default=inspect.Parameter.empty
            if name in required
            else properties[name].get("default"),
        )
        for name in ordered
    ]
    lines = [tool.description or tool.name, *(["", "Args:"] if ordered else [])]
    for name in ordered:
        description = " ".join(str(properties[name].get("description") or name).split())
        lines.append(f"    {name}: {description}")
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = "\n".join(lines)
    call.__annotations__ = {**kinds, "return": str}
    call.__signature__ = inspect.Signature([own, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    return call


_PLAIN: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "null": type(None),
}


def _kind(schema: Mapping[str, Any]) -> Any:
    """Return the Python type from which transformers makes this JSON Schema, or a wider schema."""
    if choices := schema.get("enum"):
        return Literal[tuple(choices)]
    if options := schema.get("anyOf"):
        return Union[tuple(_kind(option) for option in options)]  # noqa: UP007 (made at run time)
    named = schema.get("type")
    if isinstance(named, list):
        return Union[tuple(_kind({**schema, "type": option}) for option in named)]  # noqa: UP007
    if named == "array":
        return list[_kind(schema.get("items", {}))]  # type: ignore[misc]
    return _PLAIN.get(str(named), Optional[Any])  # noqa: UP045
