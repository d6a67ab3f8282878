"""The environment contract, which is this file alone.

    @ludus.register("me/echo-v0")
    class Echo(ludus.TextEnv):
        '''Say the word back.'''

        system_prompt = "Repeat the word you are given."

        def reset(self, *, seed=None, options=None):
            self.word = self.rng.choice(["salve", "vale", "gratias"])
            return self.word, {}

        def step(self, action):
            return "", float(action.strip() == self.word), True, False, {}

An environment plays one episode at a time. Its methods are `def` or `async def`. An `EnvSession`
drives the environment: the session picks the task, seeds `self.rng`, checks types, runs tools,
counts turns and refuses steps out of order, so that the environment does not have to.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Literal

import msgspec

from ludus.messages import Message, Observation
from ludus.verdict import Verdict

from .tasks import GeneratedTasks, Task, TaskSet
from .tools import Tool, ToolSpec, tools_of

Info = dict[str, Any]
Reset = tuple[Observation, Info]
Step = tuple[Observation, float | Verdict, bool, bool, Info]


class Briefing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts and tools that the policy is told before the first observation. Nothing else of
    `info` reaches the policy.
    """

    system_prompt: str = ""
    tools: list[ToolSpec] = []
    answer_format: str = ""
    """How the final answer has to be given, in words; shown after the system prompt."""
    max_turns: int | None = None
    shows_images: bool = False
    """Whether an observation that the policy answers may hold images: a model that reads text
    alone is then refused before the episode.
    """


REPLACED = frozenset({"reset", "step", "close", "__ludus_tools__"})
"""Attributes of an environment's object that hide those of its class, on a server."""


class TextEnv(ABC):
    """The base class of environments.

    The class attributes are the briefing of every episode. An episode overrides them by putting a
    `Briefing` into `info["briefing"]` at reset.
    """

    system_prompt: ClassVar[str] = ""
    answer_format: ClassVar[str] = ""
    max_turns: ClassVar[int | None] = None
    """Turns after which the episode is truncated; None leaves the end of an episode to `step`."""
    shows_images: bool = False
    """Whether an observation that the policy answers, or a tool's result, may hold images."""
    deterministic: bool = True
    """Whether task, seed and actions fix the episode. False when a judge or a simulated user is
    inside.
    """
    never_blocks: bool = False
    """Whether reset, step and every tool return within about a millisecond, whatever the action.
    A server then calls them in its own process, on the event loop; all others are played in worker
    processes, which can be ended.
    """
    hears_thoughts: bool = False
    """Whether `step` is given a policy's thoughts too, with their marks, to score their format. All
    others get what was said.
    """
    max_calls: int | None = None
    """Number of calls of one turn that are run; further calls are answered and not run. None runs
    all calls.
    """
    max_parallel_calls: int = 8
    """Number of calls of one turn that run at the same time, if their tools are concurrent; see
    `tool`. 1 runs all calls one after another.
    """
    forks: Literal["copy", "replay", "no"] = "replay"
    """How an episode is forked: by `fork()`, by another object that plays the same episode (which
    takes a deterministic environment), or not at all. See `envs/forking.py`.
    """
    reset_options: ClassVar[Mapping[str, type]] = {}
    """Options that a client may set at reset besides `task` and `split`, with their types."""

    task: Task = Task(id="train/0", split="train", seed=0)
    """The task of this episode, set before `reset` is called."""
    rng: random.Random = random.Random(0)
    """The randomness of this episode, seeded from task and seed before `reset` is called."""

    @abstractmethod
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Reset | Awaitable[Reset]:
        """Begin an episode on `self.task`.

        Returns:
            The first observation and an info dict. Of info, only `info["briefing"]` reaches the
            policy.
        """

    @abstractmethod
    def step(self, action: str) -> Step | Awaitable[Step]:
        """Answer an action of the policy.

        Args:
            action: what the policy said, as text. Calls of `@tool` methods do not come here: the
                session runs them, and answers calls of unknown tools. There are two exceptions, in
                which the action is a `Message`: an action with images, and an action with calls
                where the briefing declares tools that no `@tool` method runs (decision 0102).

        Returns:
            observation, reward, terminated, truncated, info. The reward is a number, or a
            `Verdict`; a verdict that is not ok ends the episode as unusable, never as zero.
        """

    def fork(self) -> TextEnv:
        """Return an independent environment in the same state, randomness included; called where
        `forks` is "copy". The default is a deep copy: write it where the object shares something
        that may be shared, such as a corpus.
        """
        twin: TextEnv = object.__new__(type(self))
        memo = {id(self): twin}
        # methods that a server has put in the place of the class's belong to the original
        kept = {name: value for name, value in vars(self).items() if name not in REPLACED}
        vars(twin).update({name: deepcopy(value, memo) for name, value in kept.items()})
        return twin

    def close(self) -> Awaitable[None] | None:
        """Release what the environment holds. Called once or more."""
        return None

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split. The default is a task for each seed, endless, disjoint
        between splits.
        """
        return GeneratedTasks(split)

    def gold(self) -> object | None:
        """Return the answer of this episode; None without a single right answer. `ludus check`
        looks for it in the first observation, where it must not be (decision 0101).
        """
        return None

    def demonstrate(self) -> str | Message | None:
        """Return the action an expert would take now, or None if the environment has no expert."""
        return None

    def demonstrate_summary(self, *, newest: bool) -> str | None:
        """Return the summary an expert would write when the context window is full, or None.

        Args:
            newest: whether the window being summed up shows the newest observation.
        """
        return None

    @property
    def tools(self) -> dict[str, Tool]:
        """Return the tools of this environment: the `@tool` methods."""
        return tools_of(self)

    def briefing(self) -> Briefing:
        """Return the briefing that the class attributes give."""
        return Briefing(
            system_prompt=self.system_prompt,
            tools=[tool.spec for tool in self.tools.values()],
            answer_format=self.answer_format,
            max_turns=self.max_turns,
            shows_images=self.shows_images,
        )
