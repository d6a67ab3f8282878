"""Summaries under templates that drop earlier thoughts: a window is then spread over segments."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from ludus.agent import (
    ChatFormat,
    Finish,
    Generation,
    Sampling,
    Stop,
    TokenPolicy,
    Trajectory,
    TurnKind,
    WeightSource,
    play,
)
from ludus.agent.context import NO_SUMMARY, Summarize
from ludus.agent.context.summarize import LastPair
from ludus.agent.images import PlacedImage
from ludus.agent.parsing import HermesFormat
from ludus.envs import EnvSession, TextEnv, tool
from ludus.envs.protocol import Reset, Step
from ludus.messages import assistant, system, user
from ludus.trainer.models.tiny import build_tokenizer
from ludus.trainer.rollout.batch import as_row

END, ASK = "<|im_end|>", "SUM?"

DROPS_THOUGHTS = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}{% set parts = m.content.split('</think>') %}"
    "{% set thought = parts[0].split('<think>')[-1].strip() if parts | length > 1 else '' %}"
    "{{ '<|im_start|>assistant\n' }}{% if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{ parts[-1].lstrip('\n') }}"
    "{% for call in m.tool_calls or [] %}{{ ('\n' if parts[-1] or not loop.first else '') +"
    '\'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' '
    "+ call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
    "{% elif m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + m.content"
    " + '\n</tool_response>' }}{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Thoughts are shown since the last user message, as in Qwen3: a result keeps the thoughts before
it, a user's words drop them.
"""


class Mixed(TextEnv):
    """Answers calls by results and words by user messages, both of any length."""

    system_prompt = "S"
    max_turns = 200

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.acted = count, seed, 0

    @tool
    def look(self, at: str) -> str:
        """Look somewhere.

        Args:
            at: where.
        """
        return self._shown()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.rng, self.acted = random.Random(self.seed), 0
        return "begin", {}

    def step(self, action: str) -> Step:
        return self._shown(), 1.0, self.acted >= self.count, False, {}

    def _shown(self) -> str:
        self.acted += 1
        return f"o{self.acted}." + "." * self.rng.randrange(300)


class Thinking:
    """An engine that thinks at some length, then calls or speaks, and sums up when asked."""

    version, max_length = 0, 16_000

    def __init__(self, chat: ChatFormat, seed: int) -> None:
        self.chat, self.rng, self.acted = chat, random.Random(seed), 0
        self.summary_prompts: list[str] = []

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        prompt = self.chat.tokenizer.decode(list(ids), skip_special_tokens=False)
        made = self.chat.tokenizer.encode(self._says(prompt), add_special_tokens=False)
        kept = made[: sampling.max_tokens]
        ended = kept[-1] in sampling.stop_token_ids
        return Generation(
            ids=kept,
            logprobs=[-0.5] * len(kept),
            finish=Finish.STOP if ended else Finish.LENGTH,
            versions=[0] * len(kept),
        )

    def _says(self, prompt: str) -> str:
        if prompt.endswith(f"{ASK}{END}\n<|im_start|>assistant\n"):
            self.summary_prompts.append(prompt)
            return f"<think>\nwell\n</think>\n\n<summary>up to {self.acted}</summary>{END}"
        self.acted += 1
        thought = f"<think>\n{'t' * self.rng.randrange(20, 600)}\n</think>\n\n"
        if self.rng.random() < 0.6:
            call = f'<tool_call>\n{{"name": "look", "arguments": {{"at": "a{self.acted}."}}}}'
            return f"{thought}{call}\n</tool_call>{END}"
        return f"{thought}a{self.acted}.{END}"

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        return [0.0] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


async def run(
    window: int, *, count: int = 40, last_pair: LastPair = "discard"
) -> tuple[Trajectory, Thinking]:
    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = DROPS_THOUGHTS
    chat = ChatFormat(tokenizer, HermesFormat())
    engine = Thinking(chat, window)
    context = Summarize(
        instruction=ASK, last_pair=last_pair, continuation="{summary}", max_summaries=7
    )
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=700), window=window, context=context)
    return (await play(EnvSession(Mixed(count, window)), policy)).trajectories[0], engine


WINDOWS = range(2600, 5101, 100)


@pytest.mark.slow
@pytest.mark.parametrize("last_pair", ["discard", "carry", "keep"])
async def test_no_episode_ends_early_while_summaries_are_left(last_pair: LastPair) -> None:
    ended = [(await run(window, last_pair=last_pair))[0] for window in WINDOWS]
    assert len(ended) == 26
    # The environment ended every episode, a few on an action that the window cut.
    assert {one.stop for one in ended} <= {Stop.TERMINATED, Stop.LENGTH}
    assert sum(any(s.break_reason == "drift" for s in one.segments) for one in ended) == 26
    assert min(one.metrics["summaries"] for one in ended) >= 1


def actions(turns: Sequence[Any]) -> set[str]:
    """The marks of the actions: `a1.`, `a2.` ..."""
    spoken = [turn.message for turn in turns if turn.kind is TurnKind.ACT]
    said = [f"{one.text}{[call.arguments for call in one.tool_calls]}" for one in spoken]
    return {mark for one in said for mark in re.findall(r"a\d+\.", one)}


@pytest.mark.parametrize("window", WINDOWS[::5])
async def test_the_last_pair_leaves_the_loss_wherever_the_drift_left_it(window: int) -> None:
    trajectory, engine = await run(window)
    chat = engine.chat
    assert len(trajectory.discarded) == trajectory.metrics["summaries"]
    assert not actions(trajectory.discarded) & actions(trajectory.turns)
    rows = [row for segment in trajectory.segments if (row := as_row(segment)) is not None]
    dropped = sum(len(turn.out_ids) for turn in trajectory.discarded)
    assert sum(row.trained for row in rows) == trajectory.sampled_tokens - dropped
    for prompt, turn in zip(engine.summary_prompts, trajectory.discarded, strict=True):
        for mark in actions([turn]):  # none where the window cut the action
            assert mark not in prompt
            assert f"o{mark[1:]}" not in prompt
            assert f"o{int(mark[1:-1]) - 1}." in prompt  # what the dropped action answered
        assert prompt.startswith("<|im_start|>system\nS")
    for segment in trajectory.segments:
        for start, turn in segment.spans():
            if turn.kind is TurnKind.SUMMARY:
                shown = chat.tokenizer.decode(segment.ids()[:start], skip_special_tokens=False)
                assert shown in engine.summary_prompts


async def test_thoughts_that_are_cut_are_no_summary_and_the_next_window_says_so() -> None:
    class Brooding(Thinking):
        def _says(self, prompt: str) -> str:
            said = super()._says(prompt)
            return f"<think>\n{'SECRET ' * 500}" if "<summary>" in said else said

    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = DROPS_THOUGHTS
    chat = ChatFormat(tokenizer, HermesFormat())
    context = Summarize(instruction=ASK, continuation="{summary}", max_summaries=7)
    engine, sampling = Brooding(chat, 3000), Sampling(max_tokens=700)
    policy = TokenPolicy(engine, chat, sampling, window=3000, context=context)
    trajectory = (await play(EnvSession(Mixed(40, 3000)), policy)).trajectories[0]
    cuts = [n for n, one in enumerate(trajectory.segments) if one.break_reason == "summary"]
    assert cuts
    for place in cuts:
        opened = chat.tokenizer.decode(
            trajectory.segments[place + 1].prompt_ids, skip_special_tokens=False
        )
        assert NO_SUMMARY in opened
        assert "SECRET" not in opened


async def test_a_window_with_one_action_alone_still_ends_the_episode() -> None:
    class Flood(Mixed):
        def _shown(self) -> str:
            return super()._shown() + "." * 3000

    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = DROPS_THOUGHTS
    chat = ChatFormat(tokenizer, HermesFormat())
    engine = Thinking(chat, 1)
    policy = TokenPolicy(
        engine, chat, Sampling(max_tokens=700), window=2600, context=Summarize(instruction=ASK)
    )
    trajectory = (await play(EnvSession(Flood(9, 1)), policy)).trajectories[0]
    assert trajectory.stop is Stop.CONTEXT_FULL
    assert len(trajectory.turns) == 1


def test_the_template_drops_thoughts_at_a_users_words_only() -> None:
    tokenizer: Any = build_tokenizer()
    tokenizer.chat_template = DROPS_THOUGHTS
    chat = ChatFormat(tokenizer, HermesFormat())
    call = assistant("<think>\nhm\n</think>\n\nx")
    assert chat.prompt([system("S"), user("U"), call], [])
    assert chat.extension([user("next")], ended=True, thought=True) is None
