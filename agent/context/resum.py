"""The manager `resum`: another model summarises a full window, and the policy goes on from that.

    s_t full  ->  the other model reads s_t and writes a summary      no token of the policy
              ->  s_1 + summary                                       the prompt of the next segment

After "ReSum: Unlocking Long-Horizon Search Intelligence via Context Summarization" (arXiv
2509.13313): the summary tool is called where the window is full, or every few actions. The policy
is trained to act on such summaries, not to write them, and all segments of a rollout share the
rollout's advantage, as in the recipe `supo`. A summariser that fails ends the episode without a
reward.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.llm import ChatClient
from ludus.messages import Message, system, user

from ..trajectory import Stop
from .decisions import Delegate, Reopen
from .history import History, add_to_prompt
from .protocol import ContextManager, Sizes, require_room_to_act
from .summariser import ServerSummariser, Summariser
from .summarize import CONTINUATION, read_summary
from .tools import spelled_out

PROMPT = (
    "You summarise the work of an agent, which will go on from your summary and see nothing else. "
    "Keep the facts that were found, with their sources; what was tried in vain; what is still "
    "uncertain; and what to do next. Do not answer the task yourself. Write the summary between "
    "<summary> and </summary>."
)


@dataclass(frozen=True, slots=True)
class ReSum(ContextManager):
    """Continues from summaries that another model writes.

    Args:
        summariser: the other model; None makes one of `summariser_url` and `summariser_model`.
        summariser_url: address of the other model's server, up to and with `/v1`.
        summariser_model: the model's name on that server.
        summariser_key_env: environment variable with the bearer token of that server; empty sends
            none.
        threshold: the share of the window from which the window is summarised.
        every: also summarise after this many actions; 0 waits for the window.
        max_summaries: after this many summaries a full window ends the episode.
        summary_tokens: the most tokens of a summary.
        carry: whether the newest exchange is shown after the summary. The paper shows none; an
            environment that waits for an answer to its last message needs it.
        prompt: the instruction to the other model.
        continuation: the text after the first prompt that contains `{summary}`.
    """

    summariser: Summariser | None = None
    summariser_url: str = ""
    summariser_model: str = ""
    summariser_key_env: str = ""
    threshold: float = 0.9
    every: int = 0
    max_summaries: int = 7
    summary_tokens: int = 256
    carry: bool = False
    prompt: str = PROMPT
    continuation: str = CONTINUATION
    name = "resum"

    def __post_init__(self) -> None:
        if self.summariser is None:
            if not self.summariser_url or not self.summariser_model:
                raise ConfigError(
                    "resum needs the model that writes the summaries: set "
                    "context.summariser_url and context.summariser_model"
                )
            # The key of the policy's own server is not sent to another one.
            key = os.environ.get(self.summariser_key_env, "") if self.summariser_key_env else ""
            client = ChatClient(self.summariser_url, self.summariser_model, api_key=key)
            object.__setattr__(self, "summariser", ServerSummariser(client))  # frozen otherwise
        if self.max_summaries < 1 or self.summary_tokens < 1 or self.every < 0:
            raise ConfigError(
                "resum needs max_summaries >= 1, summary_tokens >= 1 and every >= 0, got "
                f"{self.max_summaries}, {self.summary_tokens} and {self.every}"
            )
        if "{summary}" not in self.continuation:
            raise ConfigError(
                f"the continuation of resum must hold {{summary}}, got {self.continuation!r}"
            )

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def before_turn(self, history: History) -> Delegate | None:
        """Summarise after every `every` actions."""
        actions = len(history.actions)
        if not self.every or actions < (history.summaries + 1) * self.every:
            return None
        return self._delegate(history) if history.summaries < self.max_summaries else None

    def when_full(self, history: History) -> Delegate | Stop:
        """Let the other model summarise the window, or stop if all summaries are used."""
        if history.summaries >= self.max_summaries:
            return Stop.MAX_SUMMARIES
        return self._delegate(history)

    def check(self, sizes: Sizes) -> None:
        """Require that a window holds a step after the longest summary."""
        opening_tokens = sizes.reopened + self.summary_tokens
        made_of = f"the first prompt, {sizes.reopened}, and a summary of {self.summary_tokens}"
        require_room_to_act(self.name, sizes, self.limit(sizes.window), opening_tokens, made_of)

    async def close(self) -> None:
        """Close the connection to the other model."""
        if self.summariser is not None:
            await self.summariser.close()

    def _delegate(self, history: History) -> Delegate:
        assert self.summariser is not None
        summariser, request = self.summariser, self._request(history.view)

        async def write() -> str:
            return read_summary(await summariser.write(request, self.summary_tokens))

        def resume(summary: str) -> Reopen:
            continuation = self.continuation.replace("{summary}", summary)
            carried_messages = history.last(1) if self.carry else []
            return Reopen(
                [*add_to_prompt(history.opening, continuation), *carried_messages], self.name
            )

        return Delegate(write, resume)

    def _request(self, view: Sequence[Message]) -> list[Message]:
        transcript = "\n\n".join(f"[{message.role}] {spelled_out(message)}" for message in view)
        return [system(self.prompt), user(f"The conversation of the agent:\n\n{transcript}")]
