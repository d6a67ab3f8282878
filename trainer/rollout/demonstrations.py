"""Episodes that an environment's own expert plays, as tokens, for a supervised warm start.

The expert plays in the same context windows as the policy will: where the context manager asks for
a summary, the expert writes the summary too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludus.agent import (
    ChatFormat,
    Episode,
    EpisodeLimits,
    Finish,
    Generation,
    Span,
    Stop,
    TokenPlayer,
    TurnKind,
    play,
)
from ludus.agent.context import ContextManager, KeepEverything, TokenBounds
from ludus.envs import EnvSession, ToolSpec
from ludus.envs.session import expert_action
from ludus.errors import ConfigError
from ludus.messages import Message, as_action

WITHOUT_END = 1 << 40
"""A number of tokens that no text reaches."""
LIMITS = EpisodeLimits(max_turns=1 << 20)
"""Limits that no demonstration reaches: an expert is cut by its environment alone."""


class ExpertPolicy:
    """A policy that asks an environment in this process for the expert's next action and writes
    tokens.

    Args:
        session: the session being played; its environment demonstrates.
        chat_format: converts messages to token ids.
        context: the context manager, which decides what happens when the window is full.
        window: context window in tokens; None is unlimited.
    """

    trainable = True

    def __init__(
        self,
        session: EnvSession,
        chat_format: ChatFormat,
        *,
        context: ContextManager | None = None,
        window: int | None = None,
    ) -> None:
        self.session = session
        self.chat_format = chat_format
        self.context: ContextManager = context or KeepEverything()
        self.window = window or WITHOUT_END

    def begin(self, *, seed: int = 0) -> TokenPlayer:
        """Return a player for an episode; `seed` is ignored, since experts draw from the
        environment's own randomness.
        """
        return TokenPlayer(
            self.chat_format,
            self,
            self.context,
            TokenBounds(window=self.window, answer=WITHOUT_END),
        )

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Return the tokens of the expert's next action or summary."""
        action = as_action(self._shown(span))
        tools: list[ToolSpec] = []
        if action.tool_calls:
            tools = [*self.session.env.briefing().tools, *self.context.tools]
        answer_ids = self.chat_format.answer(action, tools, ids)
        # A supervised loss reads neither log-probabilities nor versions.
        zeros = [0] * len(answer_ids)
        return Generation(
            ids=answer_ids, logprobs=[0.0] * len(answer_ids), finish=Finish.STOP, versions=zeros
        )

    def _shown(self, span: Span) -> str | Message:
        if span.kind is TurnKind.SUMMARY:
            return self._summary(newest=span.shows_newest)
        action = as_action(expert_action(self.session))
        if span.history is None:
            return action
        return self.context.rehearse(action, lambda: self._summary(newest=True), span.history)

    def _summary(self, *, newest: bool) -> str:
        summary = self.session.env.demonstrate_summary(newest=newest)
        if summary is None:
            raise ConfigError(
                f"{self.session.id} cannot go on in a window of {self.window} tokens: its "
                "demonstrate_summary() returned None; write it, make the window larger, or take "
                "another context.manager"
            )
        return summary


async def demonstrate(expert: ExpertPolicy, *, split: str, seed: int) -> Episode:
    """Play a demonstration on the task that `seed` picks.

    Raises:
        ConfigError: the environment has no expert, or its demonstration failed.
    """
    session = expert.session
    window = None if expert.window == WITHOUT_END else expert.window
    episode = await play(session, expert, split=split, seed=seed, limits=LIMITS)
    trajectory = episode.trajectories[0]
    if not trajectory.verdict.ok or trajectory.stop in (Stop.CONTEXT_FULL, Stop.MAX_SUMMARIES):
        reason = trajectory.verdict.detail or f"it ended with {trajectory.stop!s}; window {window}"
        if trajectory.stop is Stop.CONTEXT_FULL:
            reason += " is too small for it; make it larger"
        raise ConfigError(f"{session.id} could not demonstrate task {episode.task}: {reason}")
    return episode
