"""The law of thoughts: an expert's answer after thoughts earns what it earns without.

    python benchmarks/thoughts.py                 # every family, verifier, style and path
    python benchmarks/thoughts.py --episodes 1 --family ludus/sql-v0

An expert's episode is recorded once, plain. It is then played again with thoughts before every
action: in the styles of several models, and with thoughts that hold what misleads a reader (another
answer, a call, a summary, a program). A thought that was cut off earns what silence earns, even
where the right answer stands in it. The paths are the session's own `step`, the same over HTTP, the
token path with a chat template, and the chat path with a server; verifiers and judges are asked
here and over HTTP. `tests/contract/test_thoughts.py` holds a small part of this in CI.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from ludus.agent import (
    ChatFormat,
    ChatPolicy,
    EpisodeLimits,
    Finish,
    Generation,
    Span,
    TokenPlayer,
    play,
)
from ludus.agent.context import KeepEverything, Summarize, TokenBounds
from ludus.agent.parsing import tool_format, turn_text
from ludus.agent.templates.choice import TRAINING
from ludus.agent.templates.text import TemplateTokenizer
from ludus.envs import EnvSession, connect, env_ids, make_async
from ludus.envs.serving.server import EnvService
from ludus.envs.session import expert_action
from ludus.errors import LudusError
from ludus.messages import ImagePart, Message, as_action, assistant
from ludus.rewards import Sample, make_verifier
from ludus.rewards.judge import PreferenceJudge
from ludus.rewards.judge.mock import MockJudge
from ludus.rewards.score import close_verifier, score_sample
from ludus.rewards.serving.server import ScoreService
from ludus.trainer.rollout.demonstrations import ExpertPolicy
from ludus.wire.address import parse_served
from ludus.wire.server import BackgroundServer, HttpServer

Style = Callable[[str, str], str]
"""Writes a thought and an answer as some model does."""

HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>"
STYLES: dict[str, Style] = {
    "none": lambda thought, said: said,
    "empty": lambda thought, said: f"<think>\n\n</think>\n\n{said}",
    "qwen": lambda thought, said: f"<think>\n{thought}\n</think>\n\n{said}",
    "r1": lambda thought, said: f"<think>{thought}</think>{said}",
    "mistral": lambda thought, said: f"[THINK]{thought}[/THINK]{said}",
    "seed": lambda thought, said: f"<seed:think>{thought}</seed:think>{said}",
    "gemma": lambda thought, said: f"<|channel>thought\n{thought}\n<channel|>{said}",
    "harmony": lambda thought, said: HARMONY.format(thought) + said,
    "apriel": lambda thought, said: (
        f"Here are my reasoning steps:\n{thought}\n[BEGIN FINAL RESPONSE]\n{said}"
    ),
    "opened": lambda thought, said: f"{thought}\n</think>\n\n{said}",
    "opened, empty": lambda thought, said: f"\n</think>\n\n{said}",
    "twice": lambda thought, said: f"<think>\n</think>\n\n<think>{thought}</think>\n{said}",
    "cut": lambda thought, said: f"<think>\n{thought} So it is {said}",
}
"""How models write thoughts; in the last one the limit cuts the turn."""
CUT = "cut"
MISLEADING = (
    "Let me see.",
    "Perhaps <answer>wrong</answer>, or \\boxed{-987654321}? No.",
    "A draft:\n```python\nraise SystemExit(1)\n```\nNo, not that.",
    '<tool_call>\n{"name": "submit", "arguments": {"answer": "wrong"}}\n</tool_call>',
    "<summary>SECRET-THOUGHT</summary> <search>nothing</search> #### -5",
    'London? Or Rome. The response mentions "London". [B] is better.',
    "He said `</think>`, and then (2, 3] is {1: '}'}; 5 < 7 > 3, [THINKING about it].",
)
"""What thoughts hold."""
TEMPLATES: dict[str, tuple[str, ...]] = {
    "qwen3": ("none", "empty", "qwen", "r1", "seed", "mistral", "opened", "twice", CUT),
    "qwen3_5_think": ("opened", "opened, empty", CUT),
    "deepseek": ("opened", "opened, empty", CUT),
    "mistral": ("none", "mistral", "qwen", CUT),
    "gemma": ("none", "gemma", CUT),
    "gpt_oss": ("none", "harmony", CUT),
}
"""The styles that models of a training template write."""
CUT_TOKENS = 300
"""The length at which a turn is cut."""
LEDGER_WINDOW = 1_800
"""The window of the ledger with summaries, in tokens, which are bytes."""
IDLE = 2
"""Turns after which a policy that says nothing is stopped."""


@dataclass
class Recorded:
    """An expert's episode."""

    env_id: str
    task: str
    actions: list[Message]
    earned: float


@dataclass
class Outcome:
    """What the law found."""

    cases: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def hold(self, path: str, case: str, earned: object, expected: object) -> None:
        """Count a case, and note a difference."""
        self.cases[path] += 1
        if earned != expected:
            self.differences.append(f"{path}: {case}: {earned} for {expected}")


def families() -> list[str]:
    """The environments that ludus ships."""
    return [env_id for env_id in env_ids() if env_id.startswith("ludus/")]


async def recorded(env_id: str, seed: int) -> Recorded:
    """Record the expert's episode on the task that `seed` picks."""
    session = make_async(env_id)
    try:
        _, info = await session.reset(seed=seed)
        actions, earned, ended = list[Message](), 0.0, False
        while not ended:
            actions.append(as_action(expert_action(session)))
            _, reward, terminated, truncated, _ = await session.step(actions[-1])
            earned, ended = earned + reward, terminated or truncated
        return Recorded(env_id, info["task"], actions, earned)
    finally:
        await session.close()


async def replayed(session: Any, episode: Recorded, actions: Sequence[str | Message]) -> float:
    """Return what `actions` earn on the recorded task."""
    await session.reset(seed=0, options={"task": episode.task})
    earned = 0.0
    for action in actions:
        _, reward, terminated, truncated, _ = await session.step(action)
        earned += reward
        if terminated or truncated:
            break
    return round(earned, 9)


def thinking(actions: Sequence[Message], style: str, draws: random.Random) -> list[str | Message]:
    """Return actions with thoughts before them, as text where they are text."""
    written = list[str | Message]()
    for action in actions:
        text = STYLES[style](draws.choice(MISLEADING), action.text)
        if style == CUT:
            written.append(text)
        elif action.tool_calls:
            written.append(msgspec.structs.replace(action, content=text))
        else:
            written.append(text)
    return written


async def law_of_sessions(
    session: Any, path: str, episode: Recorded, styles: Sequence[str], outcome: Outcome
) -> None:
    """Play a recorded episode with thoughts by `step`, here or over HTTP."""
    draws = random.Random(f"{path} {episode.env_id} {episode.task}")
    expected = {False: await replayed(session, episode, episode.actions)}
    if CUT in styles:
        expected[True] = await replayed(session, episode, [""] * min(len(episode.actions), IDLE))
    for style in styles:
        written = thinking(episode.actions, style, draws)
        played = written[:IDLE] if style == CUT else written
        earned = await replayed(session, episode, played)
        outcome.hold(path, f"{episode.env_id} {style}", earned, expected[style == CUT])


class Script:
    """Says the recorded actions with thoughts, as tokens."""

    def __init__(
        self, chat: ChatFormat, session: EnvSession, actions: list[Message], style: str
    ) -> None:
        self.chat, self.session, self.style = chat, session, style
        self.actions, self.turn = actions, 0
        self.draws = random.Random(style)

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Return the next action as the model would write it."""
        tools = self.session.env.briefing().tools
        action = self.actions[min(self.turn, len(self.actions) - 1)]
        self.turn += 1
        thought = self.draws.choice(MISLEADING)
        end = self.chat.end_of_call if action.tool_calls else self.chat.end_of_turn
        said = turn_text(self.chat.tool_format, action, tools=tools).removesuffix(end)
        if self.style == "harmony":
            said = turn_text(
                self.chat.tool_format, msgspec.structs.replace(action, reasoning=thought)
            ).removesuffix(end)
        elif self.style == CUT:
            opened = self.chat.tokenizer.decode(list(ids)[-9:]).rstrip().endswith("<think>")
            said = STYLES[CUT](f"{said} {thought}", said).removeprefix("<think>" * opened)
            if self.chat.tool_format.name == "harmony":
                said = f"<|channel|>analysis<|message|>{action.text} {thought}"
        else:
            said = STYLES[self.style](thought, said)
        written = self.chat.tokenizer.encode(said, add_special_tokens=False)
        if self.style == CUT:
            filler = self.chat.tokenizer.encode(" hm", add_special_tokens=False)
            written = [*written, *filler * span.max_tokens][: span.max_tokens]
        else:
            written += [self.chat.end_of_call_id if action.tool_calls else self.chat.end_of_turn_id]
        return Generation(
            ids=written,
            logprobs=[-0.5] * len(written),
            finish=Finish.LENGTH if self.style == CUT else Finish.STOP,
            versions=[0] * len(written),
        )


PICTURE = "<|image_pad|>"


class Pictures:
    """Shows each image as one token."""

    placeholder = PICTURE

    def __init__(self, tokenizer: TemplateTokenizer) -> None:
        (self.token_id,) = tokenizer.encode(PICTURE)

    def tokens(self, image: ImagePart) -> int:
        """Return how many tokens stand for an image."""
        return 1


@dataclass
class Scripted:
    """A policy that plays a script."""

    player: Any
    trainable = False

    def begin(self, *, seed: int = 0) -> Any:
        """Return the player."""
        return self.player


async def law_of_tokens(
    session: EnvSession, episode: Recorded, template: str, styles: Sequence[str], outcome: Outcome
) -> None:
    """Play a recorded episode as tokens of a chat template."""
    known = TRAINING[template]
    tokenizer = TemplateTokenizer(known.source)
    images = Pictures(tokenizer) if PICTURE in known.source else None
    if images is None and session.env.shows_images:
        return
    chat = ChatFormat(tokenizer, tool_format(known.tool_format), images=images)
    expected = await replayed(session, episode, episode.actions)
    silence = await replayed(session, episode, [""] * min(len(episode.actions), IDLE))
    for style in styles:
        script = Script(chat, session, episode.actions, style)
        bounds = TokenBounds(window=1 << 22, answer=CUT_TOKENS if style == CUT else 1 << 22)
        player = TokenPlayer(chat, script, KeepEverything(), bounds)
        limits = _limits(IDLE if style == CUT else len(episode.actions))
        run = await play(session, Scripted(player), task=episode.task, limits=limits)
        earned = round(run.trajectories[0].ret, 9)
        case = f"{episode.env_id} {template} {style}"
        outcome.hold("tokens", case, earned, silence if style == CUT else expected)


def _limits(turns: int) -> EpisodeLimits:
    return EpisodeLimits(max_turns=turns, max_idle_turns=0)


@asynccontextmanager
async def model_server(answers: Iterator[dict[str, Any]]) -> AsyncIterator[str]:
    """A chat server that says `answers`."""

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        message = next(answers)
        finish = message.pop("finish", "stop")
        return web.json_response({"choices": [{"message": message, "finish_reason": finish}]})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app) as running:
        yield str(running.make_url("/v1"))


async def law_of_chat(
    session: EnvSession, episode: Recorded, styles: Sequence[str], outcome: Outcome
) -> None:
    """Play a recorded episode through a chat server that leaves thoughts in the text."""
    expected = await replayed(session, episode, episode.actions)
    silence = await replayed(session, episode, [""] * min(len(episode.actions), IDLE))
    for style in styles:
        draws = random.Random(style)
        for in_text in (False, True) if episode.actions[0].tool_calls else (False,):
            answers = (
                _completion(action, style, draws, session, in_text=in_text)
                for action in episode.actions
            )
            async with model_server(answers) as url:
                policy = ChatPolicy(url, "m", api_key="", tool_format="hermes" if in_text else "")
                limits = _limits(IDLE if style == CUT else len(episode.actions))
                try:
                    run = await play(session, policy, task=episode.task, limits=limits)
                finally:
                    await policy.close()
            earned = round(run.trajectories[0].ret, 9)
            case = f"{episode.env_id} {style} {'calls in the text' * in_text}"
            outcome.hold("chat", case, earned, silence if style == CUT else expected)


def _completion(
    action: Message, style: str, draws: random.Random, session: EnvSession, *, in_text: bool
) -> dict[str, Any]:
    said = action.text
    if in_text:
        said = turn_text(tool_format("hermes"), action, tools=session.env.briefing().tools)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": STYLES[style](draws.choice(MISLEADING), said),
    }
    if style == CUT:
        return message | {"finish": "length"}
    if action.tool_calls and not in_text:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{number}",
                "type": "function",
                "function": {
                    "name": call.name.replace(".", "_"),
                    "arguments": msgspec.json.encode(call.arguments).decode(),
                },
            }
            for number, call in enumerate(action.tool_calls)
        ]
    return message


SUMMED_UP = {"qwen3": "qwen", "qwen3_5_think": "opened", "deepseek": "opened", "mistral": "mistral"}
"""Templates under which summaries are written, each with the style of its models."""
SECRET = "SECRET-THOUGHT <summary>SECRET-THOUGHT</summary>"


class ThinkingExpert(ExpertPolicy):
    """An expert that thinks before every action and every summary."""

    style = "none"

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Return the expert's tokens after thoughts."""
        plain = await super().speak(ids, span)
        if self.style == "none":
            return plain
        tokenizer = self.chat_format.tokenizer
        text = tokenizer.decode(plain.ids, skip_special_tokens=False)
        opened = self.chat_format.parse([], complete=False, prompt=ids).thinks
        written = SECRET + text if opened else STYLES[self.style](SECRET, text)
        ids = tokenizer.encode(written, add_special_tokens=False)
        zeros = [0] * len(ids)
        return Generation(ids=ids, logprobs=[0.0] * len(ids), finish=Finish.STOP, versions=zeros)


async def law_of_summaries(template: str, outcome: Outcome, *, seed: int = 0) -> int:
    """Play the ledger in a window that summaries cut; return how many were written.

    What the expert remembers is what it said: it earns what it earns without thoughts, and no
    later window shows a thought.
    """
    known = TRAINING[template]
    chat = ChatFormat(TemplateTokenizer(known.source), tool_format(known.tool_format))
    earned, written = dict[str, float](), 0
    for style in ("none", SUMMED_UP[template]):
        session = make_async("ludus/ledger-v0", turns=40)
        context = Summarize(max_summaries=64, summary_tokens=1 << 20)
        expert = ThinkingExpert(session, chat, context=context, window=LEDGER_WINDOW)
        expert.style = style
        run = await play(session, expert, seed=seed, limits=_limits(0))
        await session.close()
        trajectory = run.trajectories[0]
        earned[style] = trajectory.ret if trajectory.verdict.ok else -1.0
        written = int(trajectory.metrics.get("summaries", 0))
        opened = [chat.tokenizer.decode(s.prompt_ids) for s in trajectory.segments]
        shown = sum("SECRET" in text.partition("summary of the work")[2] for text in opened)
        outcome.hold("summaries", f"{template} {style}", shown, 0)
    outcome.hold("summaries", f"{template} reward", earned[SUMMED_UP[template]], earned["none"])
    return written


RIGHT: dict[str, list[Sample]] = {
    "exact": [Sample(response=" Paris ", gold="paris"), Sample(response="b", gold=["a", "b"])],
    "maths": [
        Sample(response="so x = 5. \\boxed{5}", gold="5"),
        Sample(response="The answer is 7/2.", gold="3.5"),
        Sample(response="42", gold="42"),
    ],
    "coding": [
        Sample(
            response="```python\ndef f(t):\n    return t.split('</think>')[-1]\n```",
            gold={"tests": ["assert f('a</think>b') == 'b'"]},
        ),
        Sample(
            response="    return n + 1",
            gold={"tests": ["assert f(1) == 2"], "entry_point": "f", "stub": "def f(n):\n"},
        ),
    ],
    "overlap": [Sample(response="the cat sat on the mat", gold="the cat sat on a mat")],
    "judge": [
        Sample(
            response="It is Paris.",
            gold="",
            info={
                "rubric": {
                    "items": [
                        {"id": "names", "text": 'The response mentions "Paris".', "weight": 2.0},
                        {"id": "errs", "text": 'The response mentions "London".', "weight": -1.0},
                    ]
                }
            },
        )
    ],
}
"""Right answers of verifiers."""
ALONE = tuple(name for name in RIGHT if name != "judge")
"""Verifiers that ask no server."""
GROUP = ("It is Paris.", "It is Paris, the capital of France, on the Seine.", "Who knows?")
"""Answers that a judge compares."""


def law_of_verifiers(outcome: Outcome, styles: Sequence[str], names: Sequence[str]) -> None:
    """Score right answers with thoughts, here and over HTTP."""
    with BackgroundServer(HttpServer([ScoreService(list(names))])) as url, connect(url) as server:
        for name in names:
            known, options = parse_served(name)
            verifier = make_verifier(known, **options)
            paths = {
                "verifiers": lambda sample, own=verifier: score_sample(own, sample),
                "verifiers over HTTP": lambda sample, known=known: server.score(known, sample),
            }
            for path, score in paths.items():
                _law_of_verifier(name, path, score, styles, outcome)
            close_verifier(verifier)


def _law_of_verifier(
    name: str, path: str, score: Callable[[Sample], Any], styles: Sequence[str], outcome: Outcome
) -> None:
    draws = random.Random(name)
    for case in RIGHT[name.partition("?")[0]]:
        expected = score(case).reward
        silence = score(msgspec.structs.replace(case, response="")).reward
        for style in styles:
            text = STYLES[style](draws.choice(MISLEADING), case.text)
            for response in (text, [assistant(text)]):
                sample = msgspec.structs.replace(case, response=response)
                verdict = score(sample)
                wanted = silence if style == CUT else expected
                outcome.hold(path, f"{name} {style} {case.text[:20]!r}", verdict.reward, wanted)


async def law_of_judges(outcome: Outcome, styles: Sequence[str]) -> None:
    """Have a judge's server read answers with thoughts: by a rubric, and against each other."""
    async with MockJudge() as mock:
        options = f"?base_url={mock.url}&model=mock"
        await asyncio.to_thread(law_of_verifiers, outcome, styles, (f"judge{options}",))
        for scheme in ("all_pairs", "listwise"):
            name = f"preference{options}&scheme={scheme}"
            with BackgroundServer(HttpServer([ScoreService([name])])) as url:
                await _law_of_groups(name, f"{url}/v1/score_group", styles, outcome)


async def _law_of_groups(name: str, url: str, styles: Sequence[str], outcome: Outcome) -> None:
    known, options = parse_served(name)
    judge = make_verifier(known, **options)
    assert isinstance(judge, PreferenceJudge)
    draws = random.Random(name)

    async def rewards(texts: Sequence[str]) -> list[float | None]:
        verdicts = await judge.score_group([Sample(response=text, gold="") for text in texts])
        return [verdict.reward for verdict in verdicts]

    async def over_http(texts: Sequence[str]) -> list[float | None]:
        body = {"verifier": known, "samples": [{"response": text, "gold": ""} for text in texts]}
        async with ClientSession() as http, http.post(url, json=body) as reply:
            return [verdict["reward"] for verdict in (await reply.json())["verdicts"]]

    plain, silence = await rewards(GROUP), await rewards(("", *GROUP[1:]))
    for style in styles:
        thinking = [STYLES[style](draws.choice(MISLEADING), text) for text in GROUP]
        texts, wanted = (thinking, plain) if style != CUT else ([thinking[0], *GROUP[1:]], silence)
        outcome.hold("groups", f"{name} {style}", await rewards(texts), wanted)
        outcome.hold("groups over HTTP", f"{name} {style}", await over_http(texts), wanted)
    await judge.close()


async def law_of_family(
    env_id: str,
    outcome: Outcome,
    *,
    episodes: int = 1,
    styles: Sequence[str] = tuple(STYLES),
    templates: Sequence[str] = tuple(TEMPLATES),
    chat: bool = True,
    url: str = "",
) -> None:
    """Hold an environment to the law on every path."""
    for seed in range(episodes):
        episode = await recorded(env_id, seed)
        session = make_async(env_id)
        try:
            await law_of_sessions(session, "step", episode, styles, outcome)
            for template in templates:
                wanted = [style for style in TEMPLATES[template] if style in styles]
                await law_of_tokens(session, episode, template, wanted, outcome)
            if chat:
                await law_of_chat(session, episode, styles, outcome)
        finally:
            await session.close()
        if url:
            async with connect(url) as server:
                remote = server.make_async(env_id)
                await law_of_sessions(remote, "step over HTTP", episode, styles, outcome)
                await remote.close()


def main() -> None:
    """Hold everything to the law, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=2, help="recorded for each family")
    parser.add_argument("--family", action="append", help="an environment's id; default: all")
    asked = parser.parse_args()
    outcome = Outcome()
    for env_id in asked.family or families():
        try:
            with BackgroundServer(HttpServer([EnvService([env_id])])) as url:
                asyncio.run(law_of_family(env_id, outcome, episodes=asked.episodes, url=url))
        except LudusError as error:
            print(f"{env_id} is not played here: {error}")
            continue
        print(f"{env_id}: {len(outcome.differences)} differences so far", flush=True)
    for template in SUMMED_UP:
        written = asyncio.run(law_of_summaries(template, outcome))
        print(f"ledger in windows, {template}: {written} summaries")
    law_of_verifiers(outcome, tuple(STYLES), ALONE)
    asyncio.run(law_of_judges(outcome, tuple(STYLES)))
    for path, count in sorted(outcome.cases.items()):
        wrong = sum(difference.startswith(f"{path}:") for difference in outcome.differences)
        print(f"{path:24} {count:6} cases {wrong:6} differences")
    for difference in outcome.differences[:40]:
        print(difference)


if __name__ == "__main__":
    main()
