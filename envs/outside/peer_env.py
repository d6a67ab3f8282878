"""Runs the programs of a policy for a peer's environment, in the sandbox of ludus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from ludus import sandboxes
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, Observation
from ludus.sandboxes.protocol import ExecutionStatus
from ludus.verdict import Verdict

from ..protocol import Briefing, Info, TextEnv
from ..tasks import SPLITS, GeneratedTasks, TaskSet
from ..tools import ToolSpec
from .home import python_of
from .kinds import EnvKind
from .process import START_TIMEOUT_S, Child, PeerFailed, PeerLost, interpreter


def run_program(question: dict[str, Any], left_s: float) -> dict[str, Any]:
    """Run the Python program that a peer's environment asks to be run.

    Args:
        question: `run`, the program; `stdin`; `timeout_s`, the peer's own limit.
        left_s: the seconds that are left of the step.

    Returns:
        `ok`, `stdout` and `stderr`.

    Raises:
        RuntimeError: the sandbox failed, so that nothing is known of the program.
    """
    limit = max(0.1, min(float(question["timeout_s"]), left_s))
    ran = sandboxes.execute(str(question["run"]), stdin=str(question["stdin"]), timeout_s=limit)
    if ran.status is ExecutionStatus.INFRA_ERROR:
        raise RuntimeError(f"the sandbox failed: {ran.stderr[-300:]}")
    return {"ok": ran.status is ExecutionStatus.OK, "stdout": ran.stdout, "stderr": ran.stderr}


SEEDS_PER_SPLIT = 1 << 30
"""The generated tasks of a split: peers take seeds of 32 bits, of which each split has a range."""


class PeerFacts(msgspec.Struct, frozen=True):
    """What the peer's side tells about an environment."""

    sizes: dict[str, int] | None = None
    """The number of tasks of each split; None where tasks are made from seeds."""
    rewards: tuple[float, float] | None = None
    """The lowest and the highest reward that the peer declares."""
    players: int = 0
    """The number of players of a game."""
    peer_id: str = ""
    """The environment's name in the peer's own registry, where it has one."""


class PeerReset(msgspec.Struct, frozen=True):
    """The answer to a reset."""

    observation: Observation
    system_prompt: str = ""
    answer_format: str = ""
    tools: list[ToolSpec] = []
    max_turns: int | None = None
    gold: str | None = None
    expert: str | None = None
    info: dict[str, Any] = {}


class PeerStep(msgspec.Struct, frozen=True):
    """The answer to a step; `failure` says why the reward is missing."""

    observation: Observation = ""
    reward: float | None = None
    failure: str = ""
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}
    expert: str | None = None


class PeerEnv(TextEnv):
    """An environment of another project, played in a separate process.

    Args:
        kind: the kind of environments.
        family: the family, as the peer calls it.
        python: the interpreter; empty takes the one that `ludus env install` made, or else this
            one.
        unit_rewards: map the rewards that the peer declares onto 0 to 1, in proportion.
        timeout_s: the limit of a reset or a step, in seconds; a process that is late is ended.
        start_timeout_s: the limit of importing the peer's package, in seconds.
        memory_mb: what an episode may use above the memory of the imported package, in MiB.
        walls: whether the process gives up files, network and programs of the machine before the
            first episode. None does so wherever the machine can.
        settings: further arguments, which the peer's environment takes.

    Raises:
        ConfigError: the peer is not installed, cannot be imported, or refuses the settings.
    """

    def __init__(
        self,
        kind: EnvKind,
        family: str,
        /,
        *,
        python: str = "",
        unit_rewards: bool = False,
        timeout_s: float = 60.0,
        start_timeout_s: float = START_TIMEOUT_S,
        memory_mb: int = 4096,
        walls: bool | None = None,
        **settings: Any,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("start_timeout_s", start_timeout_s)):
            if not 0 < value <= 86_400:
                raise ConfigError(f"{kind.name}: {name} must be from 0 to 86400, got {value!r}")
        if memory_mb < 0:
            raise ConfigError(f"{kind.name}: memory_mb must be 0 or more, got {memory_mb!r}")
        self.kind, self.family = kind, family
        self.deterministic = kind.deterministic
        self._python = python_of(kind, python)
        self._timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._memory_bytes, self._walls = memory_mb << 20, walls
        self._files = [str(Path(str(settings[n])).resolve()) for n in kind.files if n in settings]
        self._settings = settings | dict(zip(kind.files, self._files, strict=False))
        self._unit = unit_rewards
        self._child: Child | None = None
        self._gold: str | None = None
        self._expert: str | None = None
        self.about = self._started()

    @property
    def label(self) -> str:
        """The kind and the family, for messages."""
        return f"{self.kind.name}/{self.family}"

    def tasks(self, split: str) -> TaskSet:
        """Return the peer's tasks of a split, or a task for each seed of the split's range."""
        if self.about.sizes is None:
            return GeneratedTasks(split, SEEDS_PER_SPLIT)
        return GeneratedTasks(split, self.about.sizes.get(split, 0))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode on the task."""
        self._gold = self._expert = None
        index = int(self.task.id.rpartition("/")[2])
        number = SPLITS.index(self.task.split) * SEEDS_PER_SPLIT + index % SEEDS_PER_SPLIT
        choice = {"split": self.task.split, "index": index, "seed": number}
        began = self._asked("reset", [choice], PeerReset)
        self._gold, self._expert = began.gold, began.expert
        briefing = Briefing(
            system_prompt=began.system_prompt,
            answer_format=began.answer_format,
            tools=began.tools,
            max_turns=began.max_turns,
        )
        return began.observation, {**began.info, "briefing": briefing}

    def step(self, action: str | Message) -> tuple[Observation, float | Verdict, bool, bool, Info]:
        """Let the peer answer an action."""
        move: dict[str, object] = {"text": action, "calls": []}
        if isinstance(action, Message):
            calls = [
                {"name": call.name, "arguments": call.arguments, "id": call.id, "error": call.error}
                for call in action.tool_calls
            ]
            move = {"text": action.text, "calls": calls}
        answered = self._asked("step", [move], PeerStep)
        self._expert = answered.expert
        reward = self._reward(answered)
        return (
            answered.observation,
            reward,
            answered.terminated or isinstance(reward, Verdict),
            answered.truncated,
            answered.info,
        )

    def close(self) -> None:
        """End the process of this environment."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def gold(self) -> str | None:
        """Return the answer of this episode; None if the peer knows no answer."""
        return self._gold

    def demonstrate(self) -> str | None:
        """Return what an expert would do now, if the peer knows."""
        return self._expert

    def _reward(self, answered: PeerStep) -> float | Verdict:
        reward, bounds = answered.reward, self.about.rewards
        if answered.failure or reward is None:
            return Verdict.error(answered.failure or f"{self.label} gave no reward")
        if bounds is None:
            return reward
        low, high = bounds
        # A sum of floating-point rewards may end a little outside of the bounds.
        if not low - 1e-9 <= reward <= high + 1e-9:
            return Verdict.error(
                f"{self.label} gave the reward {reward:g}, outside the declared {low:g} to {high:g}"
            )
        return (reward - low) / (high - low) if self._unit else reward

    def _asked(self, do: str, arguments: list[Any], answer: Any) -> Any:
        """Call the peer.

        Raises:
            RewardUnavailable: the peer failed, or its process is late or gone.
            ConfigError: the peer refuses.
        """
        try:
            if self._child is None:
                self._started()
            assert self._child is not None
            reply = self._child.call(
                {"do": do, "arguments": arguments}, timeout_s=self._timeout_s, reply=run_program
            )
            return msgspec.convert(reply, answer)
        except PeerLost as lost:
            self._child = None  # the next call starts another process
            raise RewardUnavailable(
                Verdict.unavailable(f"{self.label} was lost at {do}: {lost}")
            ) from lost
        except PeerFailed as failed:
            raise RewardUnavailable(
                Verdict.error(f"{self.label} failed at {do}: {failed}")
            ) from failed
        except msgspec.ValidationError as error:
            raise RewardUnavailable(
                Verdict.error(f"{self.label} answered {do} wrongly: {error}")
            ) from error

    def _started(self) -> PeerFacts:
        """Start the process of this environment, and return the facts from the peer."""
        try:
            process = interpreter(
                self._python,
                self.kind.adapter,
                memory_bytes=self._memory_bytes,
                timeout_s=self._start_timeout_s,
                label=self.kind.name,
            )
            walls = self._has_walls(str(process.about.get("walls", "")))
            child = process.fork(walls=walls, readable=self._files, scratch=self.kind.scratch)
            self._child = child
            reply = child.call(
                {"do": "make", "family": self.family, "settings": self._settings},
                timeout_s=self._start_timeout_s,
            )
            about = msgspec.convert(reply, PeerFacts)
        except (PeerFailed, PeerLost, msgspec.ValidationError) as error:
            self.close()
            raise ConfigError(f"{self.label} cannot be made: {error}") from error
        except ConfigError:
            self.close()
            raise
        bounds = about.rewards
        is_bounded = bounds and all(map(math.isfinite, bounds)) and bounds[0] < bounds[1]
        if self._unit and not is_bounded:
            self.close()
            raise ConfigError(
                f"{self.label} declares no bounds of its rewards, so that they cannot be mapped "
                "onto 0 to 1; leave unit_rewards out"
            )
        return about

    def _has_walls(self, missing: str) -> bool:
        wanted = self.kind.walls if self._walls is None else self._walls
        if not wanted or not missing:
            return wanted
        if self._walls or self.kind.evaluates:
            why = f", and {self.kind.name} evaluates {self.kind.evaluates}"
            raise ConfigError(
                f"{self.label} cannot run behind walls here: {missing}"
                f"{why if self.kind.evaluates else ''}; walls=False runs it without"
            )
        return False
