"""ludus environments for the Tinker API: environments, groups and data sets of `tinker-cookbook`.

    dataset = LudusDataset("ludus/arithmetic-v0", renderer, batch_size=32, group_size=8, count=4096)
    builder = LudusDatasetBuilder(env="ludus/arithmetic-v0", ...)  # for the cookbook's rl.train

Tinker's trajectories have a reward at every step, so there is no value for "no reward". An episode
whose verdict is not ok raises `RewardUnavailable` instead, which the rollout strategy of the
training counts as a failed trajectory. The default strategy stops the run, `RetryOnFailure` plays
the episode again, and strategies that tolerate failures leave the trajectory out of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ludus.background import on_background
from ludus.errors import RewardUnavailable
from ludus.messages import Message, ToolCall, assistant

from .bridge import peer_package, shared_bridge, tool_call

_types: Any = peer_package(
    "tinker_cookbook.rl.types", "tinker", "EnvGroupBuilder", "RLDataset", "RLDatasetBuilder"
)
_messages: Any = peer_package("tinker_cookbook.rl.message_env", "tinker", "MessageEnv")
_renderers: Any = peer_package("tinker_cookbook.renderers.base", "tinker")
_chz: Any = peer_package("chz", "tinker")


class LudusMessageEnv(_messages.MessageEnv):  # type: ignore[misc]
    """An episode of a ludus environment, played with messages.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`.
        task: the id of a task.
        renderer: writes the tools into the prompt.
        seed: the seed of the episode's random numbers.
        url: the address of a `ludus serve` that offers the environment.
    """

    def __init__(self, env: str, task: str, renderer: Any, *, seed: int = 0, url: str = "") -> None:
        self.example_id = f"{env}:{task}"
        self._episode = shared_bridge(env, url).episode()
        self._task = task
        self._seed = seed
        self._renderer = renderer
        self._history: list[Any] = []

    async def initial_observation(self) -> list[Any]:
        """Begin the episode, and return the opening messages.

        Raises:
            RewardUnavailable: the episode could not begin.
            NotImplementedError: the renderer has no way to show tools, and the environment has
                some.
        """
        begun = await on_background(self._episode.begin(task=self._task, seed=self._seed))
        self._check()
        opening = [_chat_row(message) for message in begun]
        tools = [msgspec.to_builtins(tool) for tool in self._episode.tools]
        if tools:
            # The renderer writes a system message of its own, with the tools in it. It takes over
            # the text of ours, so that a conversation never has two.
            has_system = bool(opening) and opening[0]["role"] == "system"
            instructions = opening.pop(0)["content"] if has_system else ""
            opening = [
                *self._renderer.create_conversation_prefix_with_tools(tools, instructions),
                *opening,
            ]
        self._history = opening
        return list(self._history)

    async def step(self, message: Mapping[str, Any]) -> object:
        """Play the policy's message.

        Raises:
            RewardUnavailable: the verdict is not ok; the trajectory counts for nothing.
        """
        # The verdict holds the sum of the rewards so far, and Tinker wants the reward of this step.
        before = self._episode.verdict.reward or 0.0
        text = _renderers.get_text_content(message)
        calls = [
            tool_call(call.function.name, call.function.arguments, call.id or f"call_{number}")
            for number, call in enumerate(message.get("tool_calls") or ())
        ]
        # A call that the renderer could not parse is handed on with its error: it is not executed,
        # and the environment's session answers it with that reason.
        calls += [
            ToolCall(name="", id=f"unread_{number}", error=str(call.error))
            for number, call in enumerate(message.get("unparsed_tool_calls") or ())
        ]
        action = assistant(text, calls) if calls else str(text)
        answer = await on_background(self._episode.act(action))
        self._check()
        self._history += [message, *(_chat_row(reply) for reply in answer)]
        if self._episode.over:
            await on_background(self._episode.close())
        return _messages.MessageStepResult(
            reward=(self._episode.verdict.reward or 0.0) - before,
            episode_done=self._episode.over,
            next_messages=list(self._history),
            metrics={"turns": float(self._episode.turn)},
        )

    async def close(self) -> None:
        """Release the episode."""
        await on_background(self._episode.close())

    def _check(self) -> None:
        if not self._episode.verdict.ok:
            raise RewardUnavailable(self._episode.verdict)


class LudusGroupBuilder(_types.EnvGroupBuilder):  # type: ignore[misc]
    """Makes the environments of a group: the same task `group_size` times.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`.
        task: the id of a task.
        renderer: turns messages into tokens; those of `get_renderer` are picklable.
        group_size: how many rollouts the group has.
        seed: the seed of the episodes' random numbers, equal in the group.
        url: the address of a `ludus serve` that offers the environment.
        settings: further arguments of `EnvFromMessageEnv`, such as `max_trajectory_tokens`.
    """

    def __init__(
        self,
        env: str,
        task: str,
        renderer: Any,
        *,
        group_size: int,
        seed: int = 0,
        url: str = "",
        **settings: Any,
    ) -> None:
        self.env = env
        self.task = task
        self.renderer = renderer
        self.group_size = group_size
        self.seed = seed
        self.url = url
        self.settings = settings
        self._envs: list[LudusMessageEnv] = []

    async def make_envs(self) -> Sequence[Any]:
        """Return the environments, none of which has begun."""
        envs = [
            LudusMessageEnv(self.env, self.task, self.renderer, seed=self.seed, url=self.url)
            for _ in range(self.group_size)
        ]
        self._envs += envs  # a strategy that plays episodes again calls `make_envs` again
        return [_messages.EnvFromMessageEnv(self.renderer, env, **self.settings) for env in envs]

    async def cleanup(self) -> None:
        """Release the episodes that did not end."""
        envs, self._envs = self._envs, []
        for env in envs:
            await env.close()

    def logging_tags(self) -> list[str]:
        """Return the tag under which the training logs the group: the environment's id."""
        return [self.env]


class LudusDataset(_types.RLDataset):  # type: ignore[misc]
    """The tasks of a split, in batches of groups.

    Args:
        env: an id, with constructor arguments as in `me/env-v0?length=3`.
        renderer: turns messages into tokens.
        batch_size: how many groups a batch has.
        group_size: how many rollouts a group has.
        count: how many tasks to take, or all of the split where it has fewer. Tasks that do not
            fill a last batch are not played.
        split: the split of the tasks.
        seed: the seed of the episodes' random numbers.
        url: the address of a `ludus serve` that offers the environment.
        settings: further arguments of `EnvFromMessageEnv`.

    Raises:
        UnknownTask: no such split.
    """

    def __init__(
        self,
        env: str,
        renderer: Any,
        *,
        batch_size: int,
        group_size: int,
        count: int,
        split: str = "train",
        seed: int = 0,
        url: str = "",
        **settings: Any,
    ) -> None:
        self._batch_size = batch_size
        self._builders = [
            LudusGroupBuilder(
                env, task.id, renderer, group_size=group_size, seed=seed, url=url, **settings
            )
            for task in shared_bridge(env, url).tasks(split, count)
        ]

    def get_batch(self, index: int) -> Sequence[LudusGroupBuilder]:
        """Return the groups of a batch."""
        return self._builders[index * self._batch_size : (index + 1) * self._batch_size]

    def __len__(self) -> int:
        return len(self._builders) // self._batch_size


@_chz.chz
class LudusDatasetBuilder(_types.RLDatasetBuilder):  # type: ignore[misc]
    """Makes the data sets of `tinker_cookbook.rl.train`: the `dataset_builder` of its `Config`.

    The run trains on `count` tasks of `split`, and evaluates on `test_count` tasks of `test_split`;
    by default it does not evaluate. The tokenizer is found by a model's name, as everywhere in the
    cookbook.
    """

    env: str
    model_name_for_tokenizer: str
    renderer_name: str
    batch_size: int
    group_size: int
    count: int
    split: str = "train"
    test_count: int = 0
    test_split: str = "test"
    seed: int = 0
    url: str = ""

    async def __call__(self) -> tuple[LudusDataset, LudusDataset | None]:
        """Return the data set for training, and the data set for evaluation, if any.

        Raises:
            UnknownTask: no such split.
        """
        tokenizers: Any = peer_package("tinker_cookbook.tokenizer_utils", "tinker")
        choice: Any = peer_package("tinker_cookbook.renderers", "tinker")
        tokenizer = tokenizers.get_tokenizer(self.model_name_for_tokenizer)
        renderer = choice.get_renderer(self.renderer_name, tokenizer)

        def make_set(split: str, *, count: int, batch_size: int, group_size: int) -> LudusDataset:
            return LudusDataset(
                self.env, renderer, batch_size=batch_size, group_size=group_size, count=count,
                split=split, seed=self.seed, url=self.url,
            )  # fmt: skip

        def make_sets() -> tuple[LudusDataset, LudusDataset | None]:
            sizes = {"batch_size": self.batch_size, "group_size": self.group_size}
            train = make_set(self.split, count=self.count, **sizes)
            if not self.test_count:
                return train, None
            # An evaluation plays each task once, all in one batch.
            sizes = {"batch_size": self.test_count, "group_size": 1}
            return train, make_set(self.test_split, count=self.test_count, **sizes)

        # Listing the tasks blocks, and at the first use waits until worker processes have started.
        # In a thread this does not hold up the event loop of the training.
        return await asyncio.to_thread(make_sets)


def _chat_row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role.value, "content": message.text}
    if message.tool_call_id:
        row["tool_call_id"] = message.tool_call_id
    if message.name:
        row["name"] = message.name
    return row
