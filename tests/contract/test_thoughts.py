"""The law of `benchmarks/thoughts.py`, small: thoughts change no reward, on any path."""

import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import ChatFormat, ChatPolicy, Stop
from ludus.agent.chat_tools import TextTools
from ludus.agent.parsing import read_turn, tool_format
from ludus.agent.templates.choice import TRAINING
from ludus.agent.templates.text import TemplateTokenizer
from ludus.envs import EnvSession, TextEnv, ToolSpec, env_ids
from ludus.envs.protocol import Reset, Step
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import MissingExtra
from ludus.llm.chat_wire import Completion
from ludus.messages import Message, assistant, user
from ludus.rewards import Sample, make_verifier
from ludus.rewards.score import score_sample
from ludus.thoughts import MARKS, PAIRS, apart
from ludus.wire.server import BackgroundServer, HttpServer

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]
PATHS = ("ludus/arithmetic-v0", "ludus/ledger-v0", "ludus/calls-v0")
"""Families that are played on every path here; the benchmark plays all."""


@pytest.fixture
def law(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("thoughts")


@pytest.mark.parametrize("env_id", SHIPPED)
async def test_the_expert_earns_with_thoughts_what_it_earns_without(env_id: str, law: Any) -> None:
    outcome = law.Outcome()
    styles = ("qwen", "mistral", "opened", "cut")
    try:
        await law.law_of_family(env_id, outcome, styles=styles, templates=(), chat=False)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert outcome.cases
    assert not outcome.differences


@pytest.mark.slow
@pytest.mark.parametrize("env_id", SHIPPED)
async def test_three_thinking_styles_play_every_family_on_every_path(env_id: str, law: Any) -> None:
    outcome = law.Outcome()
    try:
        with BackgroundServer(HttpServer([EnvService([env_id])])) as url:
            styles = ("qwen", "mistral", "opened")
            await law.law_of_family(env_id, outcome, episodes=3, styles=styles, url=url)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert set(outcome.cases) >= {"step", "tokens", "chat", "step over HTTP"}
    assert not outcome.differences


@pytest.mark.parametrize("env_id", PATHS)
async def test_so_it_is_as_tokens_over_chat_and_over_http(env_id: str, law: Any) -> None:
    outcome = law.Outcome()
    with BackgroundServer(HttpServer([EnvService([env_id])])) as url:
        await law.law_of_family(env_id, outcome, url=url)
    assert len(outcome.cases) == 4
    assert not outcome.differences


@pytest.mark.parametrize("template", ["qwen3", "qwen3_5_think", "deepseek", "mistral"])
async def test_summaries_hold_no_thought(template: str, law: Any) -> None:
    outcome = law.Outcome()
    assert await law.law_of_summaries(template, outcome)
    assert not outcome.differences


def test_verifiers_score_what_was_said(law: Any, a_sandbox: None) -> None:
    outcome = law.Outcome()
    law.law_of_verifiers(outcome, tuple(law.STYLES), law.ALONE)
    assert not outcome.differences


async def test_judges_read_what_was_said(law: Any) -> None:
    outcome = law.Outcome()
    await law.law_of_judges(outcome, tuple(law.STYLES))
    assert set(outcome.cases) == {
        "verifiers", "verifiers over HTTP", "groups", "groups over HTTP"
    }  # fmt: skip
    assert not outcome.differences


@pytest.mark.parametrize("style", [*PAIRS, "harmony"])
def test_a_turn_is_written_again_byte_for_byte(style: str, law: Any) -> None:
    for thought in ("", "\n", *law.MISLEADING):
        for said in ("117", "  return 1", "", "`</think>` ends a thought"):
            if style == "harmony":
                text = law.HARMONY.format(thought) + said
            else:
                begin, end = PAIRS[style]
                text = f" {begin}\n{thought}{end}\n\n{said}"
            for marks in ("auto", style):
                message = apart(assistant(text), marks)
                assert message.thinks
                assert message.content == said
                assert message.written == text
                assert apart(message, marks) == message


def test_a_sentence_opens_thoughts_in_a_prompt_or_before_their_end() -> None:
    opened, end = (f"{mark}\n" for mark in PAIRS["apriel"])
    assert apart(assistant(f"7 and 6.\n{end}42"), opened=opened).content == "42"
    assert apart(assistant(f"{opened}7 and 6.\n{end}42")).content == "42"
    said = f"{opened}7 * 6 is 42."
    assert apart(assistant(said)).content == said
    cut = assistant('7 and 6. <tool_call>{"name": "f", "arguments": {}}</tool_call>')
    read = read_turn(tool_format("hermes"), cut.text, opened=opened)
    assert (read.only_thinks, read.tool_calls, read.written) == (True, [], cut.text)


def test_a_sentence_that_is_repeated_costs_no_more_than_other_text() -> None:
    sentence = PAIRS["apriel"][0]

    def seconds(text: str) -> float:
        begun = time.process_time()
        apart(assistant(text))
        return time.process_time() - begun

    costs = [seconds(f"{begin} yes " * 4000) for begin in (sentence[::-1], sentence)]
    assert costs[1] < 100 * costs[0], costs


def test_a_thought_that_was_cut_is_no_answer_and_says_so() -> None:
    cut = Sample(response="<think>It is Paris", gold="paris")
    verdict = score_sample(make_verifier("exact"), cut)
    assert verdict.reward == 0.0
    assert "thoughts never end" in verdict.detail


@pytest.mark.parametrize("name", ["qwen3_5_think", "deepseek"])
def test_an_expert_ends_the_thoughts_that_the_prompt_opened(name: str) -> None:
    known = TRAINING[name]
    chat = ChatFormat(TemplateTokenizer(known.source), tool_format(known.tool_format))
    prompt = chat.prompt([user("7 * 6?")], [])
    ids = chat.answer(assistant("42"), [], prompt)
    read = chat.parse(ids, complete=True, prompt=prompt)
    assert (read.content, read.reasoning, read.thinks) == ("42", "", True)
    assert chat.parse(chat.answer(assistant("42")), complete=False, prompt=prompt).only_thinks


class Scribe(TextEnv):
    """Keeps what it is told."""

    max_turns = 1

    def __init__(self) -> None:
        self.told: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "begin", {}

    def step(self, action: str) -> Step:
        self.told.append(action)
        return "", 0.0, True, False, {}


class Critic(Scribe):
    """Scores the format."""

    hears_thoughts = True


@pytest.mark.parametrize(
    ("kind", "thoughts", "told"),
    [
        (Scribe, "auto", "7"),
        (Scribe, "none", "[THINK]hm[/THINK]7"),
        (Scribe, "think", "[THINK]hm[/THINK]7"),
        (Scribe, "mistral", "7"),
        (Critic, "auto", "[THINK]hm[/THINK]7"),
    ],
)
async def test_the_marks_are_a_setting_and_a_critic_hears_all(
    kind: type[Scribe], thoughts: str, told: str
) -> None:
    assert thoughts in MARKS
    env = kind()
    session = ServedEnv("me/scribe-v0", factory=kind, thoughts=thoughts).portable().session(env)
    assert isinstance(session, EnvSession)
    for action in ("[THINK]hm[/THINK]7", assistant("[THINK]hm[/THINK]7")):
        await session.reset(seed=0)
        await session.step(action)
    assert env.told == [told, told]


@pytest.mark.parametrize(
    ("thoughts", "told"),
    [
        ("auto", "7"),
        ("none", "[THINK]hm[/THINK]<think>a</think>7"),
        ("think", "[THINK]hm[/THINK]<think>a</think>7"),
        ("mistral", "<think>a</think>7"),
    ],
)
@pytest.mark.parametrize("tool_format", ["", "hermes"])
async def test_the_marks_of_a_model_behind_a_server_are_a_setting(
    thoughts: str, told: str, tool_format: str, law: Any
) -> None:
    """What a name other than `auto` left in the text is speech, and no session splits it again."""
    text = "[THINK]hm[/THINK]<think>a</think>7"
    if thoughts == "think":  # the other marks stand before these, and are of no interest
        told = "7"
    env, look = Scribe(), ToolSpec(name="look", description="", parameters={"type": "object"})
    session = EnvSession(env, "me/scribe-v0")
    async with law.model_server(iter([{"content": text}] * 2)) as url:
        policy = ChatPolicy(url, "m", api_key="", tool_format=tool_format, thoughts=thoughts)
        await session.reset(seed=0)
        turn = await policy.begin().act([user("?")], [look] if tool_format else [])
        assert not isinstance(turn, Stop)
        assert turn.message is not None
        assert turn.message.written == text
        await session.step(turn.message)
        await policy.close()
    assert env.told == [told]


@pytest.mark.parametrize("style", ["qwen", "mistral", "harmony", "opened"])
def test_an_echo_that_went_through_json_is_known_again(style: str, law: Any) -> None:
    """Who keeps a conversation as JSON sends back what the model wrote, byte for byte."""
    look = ToolSpec(name="look", description="", parameters={"type": "object"})
    wire = TextTools(tool_format("hermes"))
    call = '<tool_call>\n{"name":  "look", "arguments": {"z": 1.0, "a": [2, "é"]}}\n</tool_call>'
    text = law.STYLES[style]("hm", f"I look.\n{call}")
    said = wire.read(Completion(message=assistant(text), finish="stop"), [look])
    assert [each.arguments for each in said.tool_calls] == [{"z": 1.0, "a": [2, "é"]}]
    for thinks in (True, False):
        row = json.loads(msgspec.json.encode(said))
        if not thinks:
            row |= {"reasoning": "", "thought_marks": None}
        again = msgspec.convert(json.loads(json.dumps(row, sort_keys=True)), Message)
        shown, _ = wire.request([user("?"), again], [look])
        assert shown[-1].text == text


def test_a_verifier_of_formats_hears_thoughts() -> None:
    sample = Sample(response="<think>a</think>b")
    assert (sample.text, sample.answer.reasoning) == ("b", "a")
    assert sample.heard_by(_Hearing()).text == "<think>a</think>b"
    assert sample.heard_by(object()) is sample
    assert Sample(response="<think>a</think>b", thoughts="none").text == "<think>a</think>b"
    assert _texts([assistant("<think>a</think>b")]) == "b"


class _Hearing:
    hears_thoughts = True


def _texts(response: Sequence[Message]) -> str:
    return Sample(response=list(response)).text
