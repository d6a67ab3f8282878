"""Released templates, as TRL's package brings them: nothing is lost silently, nothing fails late.

The templates are read from an installed `trl`, or from the folder or folders in
`LUDUS_PEER_TEMPLATES` (separated by `:`); nothing of them is kept here.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import (
    ChatFormat,
    Finish,
    Generation,
    Sampling,
    Stop,
    TokenPolicy,
    WeightSource,
    play,
)
from ludus.agent.templates import cases
from ludus.agent.templates.choice import (
    TRAINING,
    open_template,
    probe_template,
    recognise,
    with_sentences,
)
from ludus.agent.templates.fallbacks import Outcome
from ludus.agent.templates.text import TemplateRefused, TemplateTokenizer, apply_template
from ludus.envs import EnvSession, TextEnv, tool
from ludus.envs.protocol import Reset, Step
from ludus.messages import Message, ToolCall, assistant

pytestmark = [pytest.mark.peers, pytest.mark.slow]


def _folders() -> list[Path]:
    named = os.environ.get("LUDUS_PEER_TEMPLATES")
    if named:
        return [Path(one) for one in named.split(":")]
    found = importlib.util.find_spec("trl")
    return [Path(found.origin).parent / "chat_templates"] if found and found.origin else []


FILES = sorted(path for folder in _folders() for path in folder.glob("*.jinja"))
files = pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in FILES]
    or [pytest.param(None, marks=pytest.mark.skip(reason="no trl, no LUDUS_PEER_TEMPLATES"))],
)


class Places(TextEnv):
    """Answers calls by results, words by user messages, all with words of their own."""

    system_prompt = "systemword"
    max_turns = 12

    def __init__(self) -> None:
        self.said = ["systemword", "openingword"]

    @tool
    def look(self, at: str) -> str:
        """describedword: look somewhere.

        Args:
            at: explainedword.
        """
        return self._say(f"found{at}")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "openingword", {}

    def step(self, action: str) -> Step:
        return self._say(f"heard{len(self.said)}word"), 0.0, False, False, {}

    def _say(self, text: str) -> str:
        self.said.append(text)
        return text


class Script:
    """An engine that speaks, calls, calls twice and thinks by turns."""

    version, max_length = 0, 60_000

    def __init__(self, chat: ChatFormat, env: Places) -> None:
        self.chat, self.env, self.turn = chat, env, 0
        self.missing: list[str] = []

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, images: Sequence[Any] = ()
    ) -> Generation:
        prompt = self.chat.tokenizer.decode(list(ids), skip_special_tokens=False)
        wanted = [*self.env.said, "look", "describedword", "explainedword"]
        self.missing += [word for word in wanted if word not in prompt]
        made = self.chat.answer(self._says(), self.env.briefing().tools)
        self.turn += 1
        return Generation(
            ids=made, logprobs=[-0.5] * len(made), finish=Finish.STOP, versions=[0] * len(made)
        )

    def _says(self) -> Message:
        at = f"place{self.turn}"
        calls = [ToolCall(name="look", arguments={"at": at}, id="call_0")]
        second = ToolCall(name="look", arguments={"at": f"other{self.turn}"}, id="call_1")
        said = [
            assistant("spoken"),
            assistant("aloud", calls),
            assistant("", calls),
            cases.thinking(assistant("so", calls)),
            cases.thinking(assistant("well")),
            assistant("", [*calls, second]),
        ][self.turn % 6]
        if self.chat.tool_format.name == "harmony" and len(said.tool_calls) > 1:
            return assistant("", calls)
        return said

    async def logprobs(self, ids: Sequence[int], *, images: Sequence[Any] = ()) -> list[float]:
        return [0.0] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


@files
@pytest.mark.parametrize("wanted", ["auto", "stock"])
async def test_an_episode_shows_all_that_was_said_or_is_refused_at_the_start(
    path: Path, wanted: str
) -> None:
    tokenizer = TemplateTokenizer.load(path)
    _, report = probe_template(tokenizer, template=wanted)
    assert {one.outcome for one in report.findings} <= set(Outcome)
    assert all(one.detail for one in report.findings if one.outcome is not Outcome.SUPPORTED)
    if report.blocking:
        with pytest.raises(TemplateRefused, match="cannot play"):
            open_template(tokenizer, template=wanted)
        return
    chat = open_template(tokenizer, template=wanted).chat_format
    env = Places()
    engine = Script(chat, env)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=2000))
    trajectory = (await play(EnvSession(env), policy)).trajectories[0]
    assert trajectory.stop is Stop.MAX_TURNS, trajectory.verdict.detail
    assert engine.missing == []
    assert trajectory.metrics.get("parse_errors", 0) == 0
    # Calls of Llama are a whole turn, so that one beside prose is prose.
    assert trajectory.metrics["tool_calls"] >= (6 if report.tool_format == "llama3_json" else 8)


@files
def test_few_are_refused(path: Path) -> None:
    """Only gpt-oss's own template is: it drops what is said beside a call."""
    _, report = probe_template(TemplateTokenizer.load(path))
    assert not report.blocking or "gptoss" in path.stem


@files
def test_the_first_prompt_of_a_training_template_is_that_of_the_release(path: Path) -> None:
    tokenizer = TemplateTokenizer.load(path)
    found = recognise(tokenizer.chat_template)
    if not found.family:
        pytest.skip(found.said)
    ours = TemplateTokenizer(with_sentences(TRAINING[found.family].source, tokenizer.chat_template))
    told, asked = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hi\nyou"}
    shown_by_release = 0
    for conversation in ([asked], [told, asked]):
        for tools in (None, [cases.TOOL.as_openai()], [cases.TOOL.as_openai()] * 2):
            try:
                theirs = apply_template(tokenizer, conversation, tools, prompt=True)
            except TemplateRefused:
                continue  # a system message, which ours puts into the first user message
            if tools and cases.TOOL.name not in theirs:
                continue  # the release does not show tools
            assert apply_template(ours, conversation, tools, prompt=True) == theirs
            shown_by_release += 1
    assert shown_by_release >= 1
