"""Episodes an environment's own expert plays, as tokens, for a supervised warm start."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.agent import ChatFormat, Episode, Player, Policy, Segment, Turn, play
from ludus.envs import EnvSession, ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message, as_action


class ExpertPolicy:
    """Asks an environment in this process what its expert would do, and writes that down as tokens.

    Args:
        session: the session being played; its environment demonstrates.
        chat_format: how messages become ids.
    """

    trainable = True

    def __init__(self, session: EnvSession, chat_format: ChatFormat) -> None:
        self.session = session
        self.chat_format = chat_format

    def begin(self, *, seed: int = 0) -> Player:
        """A player for one episode; experts draw from the environment's own randomness."""
        return _ExpertPlayer(self.session, self.chat_format)


class _ExpertPlayer:
    def __init__(self, session: EnvSession, chat_format: ChatFormat) -> None:
        self.segments: list[Segment] = []
        self._session = session
        self._format = chat_format
        self._seen = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        """Write the expert's next action into the segment."""
        shown = self._session.env.demonstrate()
        if shown is None:
            raise ConfigError(f"{self._session.id} has no expert: its demonstrate() returned None")
        turn = Turn(observation=list(messages[self._seen :]), message=as_action(shown))
        turn.obs_ids = self._extend(messages, tools)
        turn.out_ids = self._format.answer(as_action(shown))
        self.segments[-1].turns.append(turn)
        self._seen = len(messages) + 1
        return turn

    def _extend(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        if self.segments:
            new = self._format.extension(messages[self._seen :], ended=True)
            if new is not None:
                return new
        self.segments.append(Segment(prompt_ids=self._format.prompt(messages, tools)))
        return []


async def demonstrate(
    session: EnvSession, chat_format: ChatFormat, *, split: str, seed: int
) -> Episode:
    """One demonstration on the task that `seed` picks.

    Raises:
        ConfigError: the environment has no expert, or its demonstration failed.
    """
    policy: Policy = ExpertPolicy(session, chat_format)
    episode = await play(session, policy, split=split, seed=seed)
    verdict = episode.trajectories[0].verdict
    if not verdict.ok:
        raise ConfigError(
            f"{session.id} could not demonstrate task {episode.task}: {verdict.detail}"
        )
    return episode
