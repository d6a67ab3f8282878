"""What every registered context manager keeps: each sampled token is trained once, in the context
in which it was sampled, and no context is longer than the window.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ludus.agent import (
    ChatFormat,
    EpisodeLimits,
    Finish,
    Generation,
    Sampling,
    TokenPolicy,
    Trajectory,
    TurnKind,
    WeightSource,
    play,
)
from ludus.agent.context import (
    Composed,
    ContextManager,
    History,
    Reopen,
    context_names,
    find_context,
    register_context,
)
from ludus.agent.images import PlacedImage
from ludus.agent.parsing import HermesFormat
from ludus.envs import EnvSession, TextEnv, tool
from ludus.envs.protocol import Reset, Step
from ludus.messages import Message
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.rollout.batch import as_row

END, WINDOW, LONGEST = "<|im_end|>", 640, 2000
SHORT = {"instruction": "Notes?"}


class Foreign:
    """A model of somebody else that summarises by length."""

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        return f"<summary>{sum(len(one.text) for one in messages)}</summary>"

    async def close(self) -> None: ...


@register_context("test/newest")
class Newest(ContextManager):
    """A user's manager: the first prompt and the newest exchange."""

    name = "newest"

    def __init__(self, threshold: float = 0.9) -> None:
        self.threshold = threshold

    def limit(self, window: int) -> int:
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        return Reopen([*history.opening, *history.last(1)], self.name)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "summarize": SHORT | {"threshold": 0.7, "summary_tokens": 30},
    "clear": {"keep": 1, "max_tool_uses": 3},
    "records": {"record_chars": 24, "keep": 1},
    "memagent": SHORT | {"chunk_tokens": 60, "summary_tokens": 20, "threshold": 0.7},
    "mem1": SHORT,
    "agent_fold": SHORT,
    "resum": {"summariser": Foreign(), "every": 4},
}
COMPOSED = (
    "clear+summarize",
    "clear+memory+summarize",
    "memory+resum",
    "records+keep_last_k",
    "mem1+memory",
    "memagent+fold",
    "agent_fold+records",
    "fold+test/newest",
)


def manager(name: str) -> ContextManager:
    made = [find_context(part)(**ARGUMENTS.get(part, {})) for part in name.split("+")]
    return made[0] if len(made) == 1 else Composed(made)


class Depot(TextEnv):
    """Answers calls by results and words by user messages, of any length; ends after `count`."""

    system_prompt = "S"

    def __init__(self, seed: int, *, document: bool, count: int = 16) -> None:
        self.draws, self.document, self.count = random.Random(seed), document, count
        self.heard: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        long = "<document>" + "once upon a time " * 20 + "</document>" if self.document else ""
        return f"begin {long}", {}

    @tool
    def look(self, place: str) -> str:
        """Look at a place.

        Args:
            place: where
        """
        return self._hear(f"look {place}")

    def step(self, action: str) -> Step:
        said = self._hear(action)
        return said, 0.1, len(self.heard) >= self.count, False, {}

    def _hear(self, said: str) -> str:
        self.heard.append(said)
        return f"o{len(self.heard)} " + "x" * self.draws.randint(0, 40)


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


LOOK = call("look", '{"place": "p"}')
SAYINGS = (
    "a",
    "a",
    "",
    "yes <summary>s</summary>",
    "<IS>state</IS>a",
    "<IS>half",
    '<compress>{"compress_range": [1, 1], "compress_text": "c"}</compress>a',
    "<compress>nonsense</compress>",
    "<think>t</think>b",
    call("look", '{"place": "p"}'),
    call("look", '{"place": "p"}') + "\n" + call("look", '{"place": "q"}'),
    "<IS>with a call</IS>" + call("look", '{"place": "p"}'),
    "<IS>" + call("look", '{"place": "inside"}') + "</IS>a",
    call("look", '{"pla'),
    call("unheard_of", "{}"),
    call("memory", '{"command": "create", "path": "/memories/n", "file_text": "5"}'),
    call("memory", '{"command": "view", "path": "/memories"}'),
    call("memory", '{"command": "view", "path": "/etc"}'),
    call("memory", '{"command": "view", "path": "/memories"}') + call("look", '{"place": "p"}'),
    call("fetch_record", '{"id": 1}'),
    call("fetch_record", '{"id": "one"}'),
    *[call("branch", '{"prompt": "look"}'), call("return_branch", '{"message": "m"}')] * 5,
)


class Dictated:
    """An engine that says what it is told, with a tiny model's log-probabilities."""

    version, max_length = 0, LONGEST

    def __init__(self, chat: ChatFormat, model: LocalEngine, seed: int) -> None:
        self.chat, self.model, self.draws = chat, model, random.Random(seed)
        self.asked: list[tuple[list[int], Generation]] = []

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        said = self.chat.tokenizer.encode(
            self.draws.choice([*SAYINGS, *[LOOK] * 8]) + END, add_special_tokens=False
        )[: sampling.max_tokens]
        ended = said[-1] in sampling.stop_token_ids
        generation = Generation(
            ids=said,
            logprobs=(await self.model.logprobs([*ids, *said]))[len(ids) :],
            finish=Finish.STOP if ended else Finish.LENGTH,
            versions=[0] * len(said),
        )
        self.asked.append((list(ids), generation))
        return generation

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        return await self.model.logprobs(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


PHRASES = [
    *("system\n", "user\n", "assistant\n", "look", "once upon a time ", "xxxx"),
    *('{"name": "', '", "arguments": {', '"/memories', *SHORT.values()),
]
TOKENIZER: Any = build_tokenizer(PHRASES)
REWRITES = (  # every new message changes the beginning of the text: each turn is a drift
    "{{ messages | length }}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def model() -> LocalEngine:
    return LocalEngine(
        build_model(len(TOKENIZER), hidden=16, layers=1, heads=2, max_length=LONGEST)
    )


async def episode(
    name: str, model: LocalEngine, seed: int, *, drifts: bool = False
) -> tuple[Trajectory, Dictated, Depot, ContextManager]:
    tokenizer: Any = build_tokenizer(PHRASES)
    if drifts:
        tokenizer.chat_template = REWRITES
    chat = ChatFormat(tokenizer, HermesFormat())
    engine, context = Dictated(chat, model, seed), manager(name)
    env = Depot(seed, document="memagent" in name)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=60), window=WINDOW, context=context)
    limits = EpisodeLimits(max_turns=40)
    played = await play(EnvSession(env), policy, limits=limits)
    return played.trajectories[0], engine, env, context


def names() -> list[str]:
    """All that is registered, and some compositions; those of other test files are theirs."""
    return [*(name for name in context_names() if not name.startswith("other/")), *COMPOSED]


def spans(trajectory: Trajectory) -> Iterator[tuple[list[int], int, Any]]:
    for segment in trajectory.segments:
        for start, turn in segment.spans():
            yield segment.ids(), start, turn


@pytest.mark.parametrize("drifts", [False, True], ids=["template extends", "template rewrites"])
@pytest.mark.parametrize(
    "name",
    # What is put together of two is a slow test: each part is a quick one.
    [pytest.param(name, marks=pytest.mark.slow) if "+" in name else name for name in names()],
)
async def test_every_sampled_token_is_trained_once_as_it_was_sampled(
    name: str, drifts: bool, model: LocalEngine
) -> None:
    cut = 0
    for seed in range(1, 4):
        trajectory, engine, env, context = await episode(name, model, seed, drifts=drifts)
        assert trajectory.verdict.ok, trajectory.verdict.detail
        cut += any(segment.break_reason for segment in trajectory.segments)
        # Each answer of the engine is in one place: a row, or the list of what left a window.
        kept = [
            (ids[:start], turn.out_ids, turn.logprobs) for ids, start, turn in spans(trajectory)
        ]
        gone = [(turn.out_ids, turn.logprobs) for turn in trajectory.discarded]
        for prompt, said in engine.asked:
            if (prompt, said.ids, said.logprobs) in kept:
                kept.remove((prompt, said.ids, said.logprobs))
            else:
                gone.remove((said.ids, said.logprobs))
        assert not kept
        assert not gone
        # A row trains what was sampled, no more and no less, and the model agrees.
        trained = 0
        for segment in trajectory.segments:
            row = as_row(segment)
            if row is None:
                continue
            trained += row.trained
            again = await engine.logprobs(row.ids)
            for place in (place for place, on in enumerate(row.mask) if on):
                assert again[place] == pytest.approx(row.logprobs[place], abs=1e-5)
        assert trained == sum(len(turn.out_ids) for turn in trajectory.turns if turn.trained)
        assert trained == trajectory.sampled_tokens - sum(
            len(turn.out_ids) for turn in trajectory.discarded
        )
        # No context is longer than the window; a summary may be, by what the manager says.
        for ids, start, turn in spans(trajectory):
            beyond = context.overrun() if turn.kind is TurnKind.SUMMARY else 0
            assert start + len(turn.out_ids) <= WINDOW + beyond
            assert len(ids) <= WINDOW + context.overrun()
        # The environment heard each action, in order, and nothing else.
        acts = [turn for turn in all_turns(trajectory) if turn.kind is TurnKind.ACT]
        heard = [turn.action or turn.message for turn in acts]
        assert env.heard == [said for one in heard if one for said in expected(one)]
        assert not any("inside" in said for said in env.heard if name == "mem1")
        assert len(trajectory.turns) > 3
    if name != "none":
        assert cut


def all_turns(trajectory: Trajectory) -> list[Any]:
    """All turns in order of play: a discarded one stood just before its window's summary."""
    found: list[Any] = []
    for segment in trajectory.segments:
        last = segment.turns[-1:] if segment.discarded else []
        found += [*segment.turns[: len(segment.turns) - len(last)], *segment.discarded, *last]
    return found


def expected(action: Message) -> list[str]:
    """What the environment hears of an action."""
    runs = [
        f"look {one.arguments['place']}"
        for one in action.tool_calls
        if one.name == "look" and not one.error
    ]
    return runs if action.tool_calls else [action.text]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
async def test_the_same_episode_is_cut_at_the_same_places(name: str, model: LocalEngine) -> None:
    first, second = [(await episode(name, model, 3))[0] for _ in range(2)]
    assert [one.ids() for one in first.segments] == [one.ids() for one in second.segments]
    assert [one.break_reason for one in first.segments] == [
        one.break_reason for one in second.segments
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
async def test_episodes_share_nothing(name: str, model: LocalEngine) -> None:
    """The manager of a policy serves many episodes at once; each has its own state."""
    chat, context = ChatFormat(TOKENIZER, HermesFormat()), manager(name)

    async def play_with(made: ContextManager, seed: int) -> Dictated:
        engine = Dictated(chat, model, seed)
        sampling = Sampling(max_tokens=60)
        policy = TokenPolicy(engine, chat, sampling, window=WINDOW, context=made)
        await play(EnvSession(Depot(seed, document=False)), policy)
        return engine

    beside, *_ = await asyncio.gather(*(play_with(context, seed) for seed in (1, 2, 3)))
    alone = await play_with(manager(name), 1)
    assert [prompt for prompt, _ in beside.asked] == [prompt for prompt, _ in alone.asked]
