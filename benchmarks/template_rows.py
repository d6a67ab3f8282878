"""Rows and tokens of a long episode with thoughts: a model's own template beside the training one.

    python benchmarks/template_rows.py [TEMPLATE.jinja ...]

The policy is a script that thinks before each of 40 answers; the environment answers with user
messages. Without arguments, a template of this file is measured which drops the thoughts before the
last user message, as Qwen3's does. Printed for each: segments (rows of the trainer), the tokens of
all rows, and the sampled tokens.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.agent import ChatFormat, Finish, Generation, Sampling, TokenPolicy, WeightSource, play
from ludus.agent.templates.choice import open_template
from ludus.agent.templates.text import TemplateTokenizer
from ludus.envs import EnvSession, TextEnv
from ludus.envs.protocol import Reset, Step
from ludus.errors import LudusError

TURNS = 40
DROPS_THOUGHTS = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% set whole = loop.index0 > ns.last %}"
    "{% set said = m.content if whole else m.content.split('</think>')[-1] | trim %}"
    "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Talk(TextEnv):
    """Answers forty turns with user messages of some length."""

    system_prompt = "You talk."
    max_turns = TURNS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "Begin.", {}

    def step(self, action: str) -> Step:
        return "And then? " * 3, 0.0, False, False, {}


class Thinking:
    """An engine that thinks and answers."""

    version, max_length = 0, 1_000_000

    def __init__(self, chat: ChatFormat) -> None:
        self.chat, self.random = chat, random.Random(0)

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, images: Sequence[Any] = ()
    ) -> Generation:
        opened = self.chat.opening.endswith("<think>\n")
        text = f"{'' if opened else '<think>' + chr(10)}{'t' * self.random.randrange(20, 60)}"
        text = f"{text}\n</think>\n\nanswer{self.chat.end_of_turn}"
        token_ids = self.chat.tokenizer.encode(text, add_special_tokens=False)
        zeros = [0.0] * len(token_ids)
        return Generation(
            ids=token_ids, logprobs=zeros, finish=Finish.STOP, versions=[0] * len(token_ids)
        )

    async def logprobs(self, ids: Sequence[int], *, images: Sequence[Any] = ()) -> list[float]:
        return [0.0] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


async def measure(name: str, source: str, wanted: str) -> None:
    """Play the episode and print a line."""
    opened = open_template(TemplateTokenizer(source), template=wanted)
    chat = opened.chat_format
    policy = TokenPolicy(Thinking(chat), chat, Sampling(max_tokens=500))
    trajectory = (await play(EnvSession(Talk()), policy)).trajectories[0]
    rows = sum(len(segment.ids()) for segment in trajectory.segments)
    chosen = opened.report.template.partition(" ")[0]
    print(
        f"{name:<24} {chosen:<24} {len(trajectory.segments):>9} {rows:>11,} "
        f"{trajectory.sampled_tokens:>15,}"
    )


def main(paths: list[str]) -> None:
    """Measure the templates in `paths`, or the built-in one."""
    print(
        f"{'model':<24} {'template':<24} {'segments':>9} {'row tokens':>11} {'sampled tokens':>15}"
    )
    templates = [(Path(path).stem, Path(path).read_text(encoding="utf-8")) for path in paths]
    for name, source in templates or [("drops thoughts", DROPS_THOUGHTS)]:
        for wanted in ("stock", "training" if templates else "training:qwen3"):
            try:
                asyncio.run(measure(name, source, wanted))
            except LudusError as error:
                print(f"{name:<24} {wanted:<24} refused: {str(error)[:90]}")


if __name__ == "__main__":
    main(sys.argv[1:])
