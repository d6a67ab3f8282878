"""ludus environments for SkyRL: an entry point of `skyrl_gym`.

    skyrl_gym.register(id="ludus", entry_point="ludus.integrations.skyrl:LudusEnv")
    env = skyrl_gym.make(
        "ludus", env_config={"env": "ludus/arithmetic-v0"}, extras={"task": "train/7"}
    )

A row of SkyRL's data set names the task in `extras`; `rows` makes such rows. A step of SkyRL has a
reward and no place for "no reward": a verdict that is not ok is raised as `RewardUnavailable`,
which fails the trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludus.background import run_on_loop
from ludus.errors import RewardUnavailable

from .bridge import as_chat, peer_package
from .rows import EpisodeRow, TextReplies, row_writer

_base: Any = peer_package("skyrl_gym.envs.base_text_env", "skyrl", "BaseTextEnv")


class LudusEnv(_base.BaseTextEnv):  # type: ignore[misc]
    """An episode of a ludus environment, in the interface of SkyRL.

    Args:
        env_config: `env` (an id, with constructor arguments as in `me/env-v0?length=3`); optionally
            `url` and `token` of a `ludus serve`, and `tool_format` (default "hermes").
        extras: `task` (an id), `split`, `seed` (default 0), and any key of `env_config`, which
            overrides the value there. Further keys, which SkyRL adds, are not read.

    Raises:
        ConfigError: no environment is named.
    """

    def __init__(
        self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self._row = EpisodeRow.of({**dict(env_config or {}), **dict(extras or {})})
        self._episode = self._row.episode()
        self._player = TextReplies(self._row.tool_format)

    def init(
        self, prompt: Sequence[Mapping[str, str]] | None
    ) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begin the episode; the opening follows the system message of `prompt`, if any.

        Raises:
            RewardUnavailable: the episode could not begin.
        """
        begun = run_on_loop(self._row.begin(self._episode))
        self._check()
        if self._episode.max_turns is not None:
            self.max_turns = self._episode.max_turns
        opening = as_chat(self._player.opening(begun, self._episode.tools))
        given = [dict(message) for message in prompt or [] if message["role"] == "system"]
        return [*given, *opening], {"task": self._episode.task}

    def step(self, action: str) -> dict[str, Any]:
        """Play what the policy wrote.

        Raises:
            RewardUnavailable: the verdict is not ok; the trajectory counts for nothing.
        """
        episode = self._episode
        # The verdict holds the sum of the rewards so far, and SkyRL wants the reward of this step.
        before = episode.verdict.reward or 0.0
        answer = run_on_loop(episode.act(self._player.action(action, episode.tools)))
        self._check()
        self.turns = episode.turn
        output: dict[str, Any] = _base.BaseTextEnvStepOutput(
            observations=as_chat(self._player.answer(answer)),
            reward=(episode.verdict.reward or 0.0) - before,
            done=episode.over,
            metadata={},
            postprocessed_action=None,
        )
        return output

    def get_metrics(self) -> dict[str, Any]:
        """Return the number of turns, and the parts of the reward."""
        parts = {name: value for name, (value, _) in self._episode.verdict.parts.items()}
        return {"turns": self._episode.turn, **parts}

    def close(self) -> None:
        """Release the episode."""
        run_on_loop(self._episode.close())

    def _check(self) -> None:
        if not self._episode.verdict.ok:
            raise RewardUnavailable(self._episode.verdict)


@row_writer
def rows(row: EpisodeRow, index: int) -> dict[str, Any]:
    """Return rows of a SkyRL data set (`prompt`, `env_class`, `extra_info`); see
    `rows.RowWriter`.
    """
    return {"prompt": [], "env_class": "ludus", "extra_info": row.columns()}
