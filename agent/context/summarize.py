"""Managers that continue from a summary, which the policy or another model writes.

    s_t full  ->  s_t, instruction -> summary         ends this segment; trained like an action
              ->  s_1 + summary                       the prompt of the next

After "Scaling LLM Multi-turn RL with End-to-end Summarization-based Context Management" (arXiv
2510.06727): L = 0.95 of the window; the last action and its observation are dropped before the
instruction, so that one long observation cannot crowd out the summary. The environment has
executed that action all the same and is not rolled back.

Dropping suits environments whose observations can be fetched again. `last_pair` offers two
alternatives:

    discard   gone from this window and from the next; the action is not trained (the paper)
    carry     the action ends this segment and is trained; both are shown again after the summary
    keep      both are in front of the instruction; what is to survive must be in the summary

    s_t full  ->  the other model reads s_t and writes a summary      no token of the policy
              ->  s_1 + summary                                       the prompt of the next segment

After "ReSum: Unlocking Long-Horizon Search Intelligence via Context Summarization" (arXiv
2509.13313): the summary tool is called where the window is full, or every few actions. The policy
is trained to act on such summaries, not to write them, and all segments of a rollout share the
rollout's advantage, as in the recipe `supo`. A summariser that fails ends the episode without a
reward.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from ludus.errors import ConfigError, RemoteError
from ludus.llm.client import ChatClient
from ludus.messages import Message, as_action, system, user
from ludus.thoughts import apart

from ..chat import ChatFormat
from ..engine import Engine, Sampling, refuse_broken
from ..trajectory import Finish, Stop
from .protocol import (
    Delegate,
    History,
    Reopen,
    Sizes,
    TrimmingManager,
    WriteSummary,
    add_to_prompt,
    spelled_out,
    tagged,
)

TIMEOUT_S = 120.0


class Summariser(Protocol):
    """Writes summaries that the policy goes on from and is not trained on."""

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Return the answer to a conversation that asks for a summary.

        Raises:
            LudusError: no answer could be had.
        """
        ...

    async def close(self) -> None:
        """Release what the summariser holds."""
        ...


class ServerSummariser:
    """A model behind an OpenAI-compatible server.

    Args:
        client: the connection, with its own timeouts and retries; closed with the summariser.
        temperature: the sampling temperature; 0 makes equal windows give equal summaries.
    """

    def __init__(self, client: ChatClient, *, temperature: float = 0.0) -> None:
        self.client, self.temperature = client, temperature

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Ask the server."""
        answer = await self.client.complete(
            messages, max_tokens=max_tokens, temperature=self.temperature
        )
        return read_summary(answer.message)

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()


class EngineSummariser:
    """A summariser on a separate engine, whose weights no training step changes.

    Args:
        engine: the engine; closed with the summariser.
        chat_format: the chat format of the engine's model.
        sampling: temperature and the like; `max_tokens` and stop tokens are replaced.
        timeout_s: the time limit of a summary, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        chat_format: ChatFormat,
        *,
        sampling: Sampling | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.engine, self.chat_format, self.timeout_s = engine, chat_format, timeout_s
        self.sampling = sampling or Sampling(temperature=0.0)

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Sample a summary.

        Raises:
            RemoteError: the engine was not done in time, or dropped the request.
            BrokenGeneration: the engine's answer is malformed.
        """
        sampling = msgspec.structs.replace(
            self.sampling, max_tokens=max_tokens, stop_token_ids=self.chat_format.stop_token_ids
        )
        ids = self.chat_format.prompt(messages, [])
        images = self.chat_format.placed(ids, messages)
        try:
            async with asyncio.timeout(self.timeout_s):
                generation = await self.engine.generate(ids, sampling, images=images)
        except TimeoutError:
            raise RemoteError(f"no summary from the engine within {self.timeout_s:g} s") from None
        refuse_broken(generation, max_tokens)
        if generation.finish is Finish.ABORT:
            raise RemoteError("the engine dropped the request for a summary")
        return read_summary(
            self.chat_format.parse(
                generation.ids, complete=True, calls=False, marks=False, prompt=ids
            )
        )

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()


LastPair = Literal["discard", "carry", "keep"]

INSTRUCTION = (
    "The conversation has grown too long to go on with. Write a summary between <summary> and "
    "</summary> that you will go on from: you will see the task and this summary, and nothing "
    "else. Keep what was found out, what was tried, and what to do next. Call no tool now."
)
CONTINUATION = "Your summary of the work so far:\n{summary}"


@dataclass(frozen=True, slots=True)
class Summarize(TrimmingManager):
    """Summaries of the context that the policy writes and is trained on.

    Args:
        threshold: the share of the window from which the window counts as full; L = threshold * W.
        max_summaries: S; after S summaries a full window ends the episode (overlong).
        summary_tokens: the most sampled tokens of a summary.
        last_pair: what happens to the last action and its observation.
        train_summaries: False leaves the summaries out of the loss: an ablation.
        instruction: the text that asks for a summary.
        continuation: the text added to the first prompt after a summary; contains `{summary}`.
    """

    threshold: float = 0.95
    max_summaries: int = 7
    summary_tokens: int = 256
    last_pair: LastPair = "discard"
    train_summaries: bool = True
    instruction: str = INSTRUCTION
    continuation: str = CONTINUATION
    name = "summarize"

    def __post_init__(self) -> None:
        if self.max_summaries < 1 or self.summary_tokens < 1:
            raise ConfigError(
                "context.max_summaries and context.summary_tokens must be at least 1, got "
                f"{self.max_summaries} and {self.summary_tokens}"
            )
        if "{summary}" not in self.continuation:
            raise ConfigError(
                f"context.continuation must hold {{summary}}, got {self.continuation!r}"
            )

    def when_full(self, history: History) -> WriteSummary | Stop:
        """Ask for a summary, or stop if all summaries are used."""
        if history.summaries >= self.max_summaries:
            return Stop.MAX_SUMMARIES
        return WriteSummary(
            instruction=user(self.instruction),
            max_tokens=self.summary_tokens,
            drop_last=self.last_pair == "discard",
            show_newest=self.last_pair == "keep",
            trained=self.train_summaries,
            resume=lambda summary: self._resume(history, summary),
        )

    def check(self, sizes: Sizes) -> None:
        """Require that a window holds a step after the longest summary, and that the summary
        fits.
        """
        TrimmingManager.check(self, sizes)  # slots leave `super()` another class
        limit = self.limit(sizes.window)
        # An action may begin just below the limit, and is sampled to the end of the window at most.
        # Under `discard` it is cut off again before the summary (decision 0501).
        last = 0 if self.last_pair == "discard" else min(sizes.answer, sizes.window - limit)
        longest = limit + last + sizes.instruction + self.summary_tokens
        if longest > sizes.row:
            raise ConfigError(
                f"a summary may begin at {limit + last} tokens, needs {sizes.instruction} for its "
                f"instruction and up to {self.summary_tokens} (context.summary_tokens): {longest}, "
                f"but the engine takes {sizes.row}; lower context.threshold or "
                "context.summary_tokens"
            )

    def opens_with(self, sizes: Sizes) -> tuple[int, str]:
        """See `TrimmingManager.opens_with`."""
        made_of = (
            f"the first prompt, {sizes.reopened}, and a full summary, {self.summary_tokens}: "
            "context.summary_tokens"
        )
        return sizes.reopened + self.summary_tokens, made_of

    def overrun(self) -> int:
        """Return what the instruction and the longest summary may take."""
        return written_overrun(self.instruction, self.summary_tokens)

    def _resume(self, history: History, summary: str) -> Reopen:
        # Not `format`: the texts may have braces of their own.
        opening = add_to_prompt(history.opening, self.continuation.replace("{summary}", summary))
        carried_messages = history.last(1) if self.last_pair == "carry" else []
        return Reopen([*opening, *carried_messages], "summary")


INSTRUCTION_MARKS = 64
"""Number of tokens that a chat template may put around an instruction."""


def written_overrun(instruction: str, tokens: int) -> int:
    """Return the most tokens that an instruction and the text written after that may take."""
    # No tokenizer is known here. A token has at least one byte, so the bytes bound the tokens.
    return len(instruction.encode()) + INSTRUCTION_MARKS + tokens


NO_SUMMARY = "(no summary was written: the thoughts went on to the limit)"
"""What stands in place of a summary where the policy only thought."""


def read_summary(said: str | Message) -> str:
    """Return the summary in what was said: the last tagged summary, else everything. A summary that
    was cut at its budget has no closing tag, and is still returned.

    >>> read_summary("<think>hm</think> <summary>a=5</summary>")
    'a=5'
    >>> read_summary("a=5 <summary>b")
    'a=5 b'
    """
    message = apart(as_action(said))
    summaries, _ = tagged(message.text, "summary")
    if summaries:
        return summaries[-1].strip()
    return message.text.replace("<summary>", "").strip()


PROMPT = (
    "You summarise the work of an agent, which will go on from your summary and see nothing else. "
    "Keep the facts that were found, with their sources; what was tried in vain; what is still "
    "uncertain; and what to do next. Do not answer the task yourself. Write the summary between "
    "<summary> and </summary>."
)


@dataclass(frozen=True, slots=True)
class ReSum(TrimmingManager):
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

    def opens_with(self, sizes: Sizes) -> tuple[int, str]:
        """See `TrimmingManager.opens_with`."""
        made_of = f"the first prompt, {sizes.reopened}, and a summary of {self.summary_tokens}"
        return sizes.reopened + self.summary_tokens, made_of

    async def close(self) -> None:
        """Close the connection to the other model."""
        if self.summariser is not None:
            await self.summariser.close()

    def _delegate(self, history: History) -> Delegate:
        assert self.summariser is not None
        transcript = "\n\n".join(
            f"[{message.role}] {spelled_out(message)}" for message in history.view
        )
        request = [system(self.prompt), user(f"The conversation of the agent:\n\n{transcript}")]
        summariser = self.summariser

        async def write() -> str:
            return read_summary(await summariser.write(request, self.summary_tokens))

        def resume(summary: str) -> Reopen:
            continuation = self.continuation.replace("{summary}", summary)
            carried_messages = history.last(1) if self.carry else []
            return Reopen(
                [*add_to_prompt(history.opening, continuation), *carried_messages], self.name
            )

        return Delegate(write, resume)
