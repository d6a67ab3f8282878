"""Episodes that outgrow the window, cut by each context manager."""

from collections.abc import Sequence
from typing import Any

import pytest

from ludus.agent import (
    ChatFormat,
    Episode,
    EpisodeLimits,
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
from ludus.agent.context import (
    ContextManager,
    ContextSettings,
    Discard,
    Fold,
    KeepLast,
    Summarize,
    make_context,
    read_summary,
)
from ludus.agent.images import PlacedImage
from ludus.agent.parsing import HermesFormat
from ludus.envs import EnvSession, TextEnv
from ludus.envs.protocol import Reset, Step
from ludus.errors import ConfigError, UnknownName
from ludus.messages import system, user
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.rollout.batch import as_row

END = "<|im_end|>"
ASK = "SUM?"


class Steps(TextEnv):
    """Shows o1, o2 ... and pays 1, 2 ... for the actions before them; ends after `count`."""

    system_prompt = "S"

    def __init__(self, count: int = 6, width: int = 20) -> None:
        self.count, self.width = count, width
        self.actions: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.actions = []
        return "begin", {}

    def step(self, action: str) -> Step:
        self.actions.append(action)
        turn = len(self.actions)
        return f"o{turn}".ljust(self.width, "."), float(turn), turn == self.count, False, {}


class Said:
    """An engine that acts a, b, c ... and sums up as it was told."""

    version = 0

    def __init__(self, chat: ChatFormat, *summaries: str, max_length: int = 4000) -> None:
        self.chat, self.summaries, self.max_length = chat, list(summaries), max_length
        self.prompts: list[str] = []
        self.acted = 0

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        assert len(ids) + sampling.max_tokens <= self.max_length
        prompt = self.chat.tokenizer.decode(list(ids), skip_special_tokens=False)
        self.prompts.append(prompt)
        kept = self.chat.tokenizer.encode(self._says(prompt), add_special_tokens=False)
        kept = kept[: sampling.max_tokens]
        ended = bool(kept) and kept[-1] in sampling.stop_token_ids
        return Generation(
            ids=kept,
            logprobs=[-0.5] * len(kept),
            finish=Finish.STOP if ended else Finish.LENGTH,
            versions=[0] * len(kept),
        )

    def _says(self, prompt: str) -> str:
        if prompt.endswith(f"{ASK}{END}\n<|im_start|>assistant\n"):
            return self.summaries.pop(0)
        self.acted += 1
        return f"{'abcdefghijkl'[self.acted - 1]}{END}"

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        return [0.0] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


def chat_format(template: str | None = None) -> ChatFormat:
    # One token for what stands around a message, so that lengths below are easy to add up.
    tokenizer: Any = build_tokenizer(
        ["system\nS", "user\n", "assistant\n", "\n<|im_start|>user\n", ASK]
    )
    if template is not None:
        tokenizer.chat_template = template
    return ChatFormat(tokenizer, HermesFormat())


def summarize(**changes: Any) -> Summarize:
    settings: dict[str, Any] = {"threshold": 0.5, "summary_tokens": 12, "instruction": ASK}
    settings |= {"continuation": "Sum: {summary}"}
    return Summarize(**(settings | changes))


async def run(
    context: ContextManager,
    *summaries: str,
    env: TextEnv | None = None,
    window: int = 160,
    limits: EpisodeLimits | None = None,
    template: str | None = None,
    max_length: int = 4000,
) -> tuple[Trajectory, Said]:
    chat = chat_format(template)
    engine = Said(chat, *summaries, max_length=max_length)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=8), window=window, context=context)
    episode: Episode = await play(EnvSession(env or Steps()), policy, limits=limits)
    return episode.trajectories[0], engine


def obs(turn: int) -> str:
    return f"o{turn}".ljust(20, ".")


def said(*exchanges: tuple[str, str], opening: str = "begin") -> str:
    """A window: the opening, then (action, observation) pairs, up to where the policy speaks."""
    window = (
        f"<|im_start|>system\nS{END}\n<|im_start|>user\n{opening}{END}\n<|im_start|>assistant\n"
    )
    for action, shown in exchanges:
        window += f"{action}{END}\n<|im_start|>user\n{shown}{END}\n<|im_start|>assistant\n"
    return window


# The opening has 13 tokens; an exchange has 2 + 1 + 20 + 4 = 27. Windows of 160 with a threshold of
# one half are full at 80: 13 + 27 n >= 80 from the third exchange on (94 tokens).


async def test_supo_drops_the_last_pair_and_goes_on_from_prompt_and_summary() -> None:
    trajectory, engine = await run(summarize(), f"s1{END}", f"s2{END}")
    assert engine.prompts == [
        said(),
        said(("a", obs(1))),
        said(("a", obs(1)), ("b", obs(2))),
        said(("a", obs(1)), ("b", f"{obs(2)}{END}\n<|im_start|>user\n{ASK}")),
        said(opening="begin\n\nSum: s1"),
        said(("d", obs(4)), opening="begin\n\nSum: s1"),
        said(("d", obs(4)), ("e", obs(5)), opening="begin\n\nSum: s1"),
    ]
    assert trajectory.stop is Stop.TERMINATED
    assert [segment.break_reason for segment in trajectory.segments] == ["summary", ""]
    kinds = [[turn.kind.value for turn in s.turns] for s in trajectory.segments]
    assert kinds == [["act", "act", "summary"], ["act", "act", "act"]]


async def test_what_was_dropped_is_not_trained_and_what_it_earned_counts() -> None:
    trajectory, _ = await run(summarize(), f"s1{END}")
    (dropped,) = trajectory.discarded
    assert dropped.message is not None
    assert dropped.message.text == "c"
    row = as_row(trajectory.segments[0])
    assert row is not None
    assert row.trained == 2 + 2 + 3  # a, b with their ends; s1 with its end
    assert trajectory.ret == 1 + 2 + 3 + 4 + 5 + 6
    assert trajectory.verdict.reward == 21
    assert trajectory.sampled_tokens == 6 * 2 + 3
    assert trajectory.metrics["discarded_turns"] == 1
    assert trajectory.metrics["summaries"] == 1


async def test_a_carried_pair_is_trained_once_and_shown_again_after_the_summary() -> None:
    trajectory, engine = await run(summarize(last_pair="carry"), f"s1{END}", f"s2{END}")
    first, second = engine.prompts[3], engine.prompts[4]
    assert first == said(("a", obs(1)), ("b", obs(2)), ("c", ASK))
    assert second == said(("c", obs(3)), opening="begin\n\nSum: s1")
    assert not trajectory.discarded
    trained = [row.trained for s in trajectory.segments if (row := as_row(s)) is not None]
    # a b c and a summary; d e and a summary; f
    assert trained == [3 * 2 + 3, 2 * 2 + 3, 2]


async def test_a_kept_pair_is_in_front_of_the_instruction() -> None:
    _, engine = await run(summarize(last_pair="keep"), f"s1{END}", f"s2{END}")
    shown = f"{obs(3)}{END}\n<|im_start|>user\n{ASK}"
    assert engine.prompts[3] == said(("a", obs(1)), ("b", obs(2)), ("c", shown))
    assert engine.prompts[4] == said(opening="begin\n\nSum: s1")


async def test_within_a_segment_each_prompt_is_the_ids_so_far() -> None:
    chat = chat_format()
    trajectory, engine = await run(summarize(last_pair="carry"), f"s1{END}", f"s2{END}")
    prompts = iter(engine.prompts)
    for segment in trajectory.segments:
        for start, _ in segment.spans():
            before = chat.tokenizer.decode(segment.ids()[:start], skip_special_tokens=False)
            assert before == next(prompts)


async def test_without_summaries_left_a_full_window_ends_the_episode() -> None:
    trajectory, _ = await run(summarize(max_summaries=1), f"s1{END}", env=Steps(20))
    assert trajectory.stop is Stop.MAX_SUMMARIES
    assert trajectory.metrics["summaries"] == 1
    assert not trajectory.exclude_from_baseline


async def test_summaries_count_as_steps() -> None:
    trajectory, _ = await run(
        summarize(), f"s1{END}", env=Steps(20), limits=EpisodeLimits(max_turns=4)
    )
    assert trajectory.stop is Stop.MAX_TURNS
    assert [turn.kind for turn in trajectory.turns] == [TurnKind.ACT] * 2 + [TurnKind.SUMMARY]
    assert len(trajectory.discarded) == 1


async def test_a_summary_longer_than_the_window_is_cut_and_counted() -> None:
    trajectory, engine = await run(summarize(), "x" * 500, f"s2{END}")
    assert trajectory.metrics["summaries_cut"] == 1
    assert engine.prompts[4] == said(opening=f"begin\n\nSum: {'x' * 12}")


async def test_a_summary_that_calls_a_tool_runs_nothing() -> None:
    env = Steps()
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    context = summarize(summary_tokens=40)
    trajectory, engine = await run(context, f"s1{call}{END}", f"s2{END}", env=env, window=200)
    assert trajectory.metrics["summaries_with_calls"] == 1
    assert "Sum: s1<|im_end|>" in engine.prompts[5]
    assert env.actions == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("empty", [END, f"  {END}", f"<summary></summary>{END}"])
async def test_an_empty_summary_is_a_summary(empty: str) -> None:
    trajectory, engine = await run(summarize(summary_tokens=24), empty, f"s2{END}")
    assert trajectory.stop is Stop.TERMINATED
    assert engine.prompts[4] == said(opening="begin\n\nSum: ")


async def test_a_summary_cannot_speak_as_somebody_else() -> None:
    _, engine = await run(summarize(), f"s<|im_start|>x{END}", f"s2{END}")
    assert engine.prompts[4] == said(opening="begin\n\nSum: sx")


async def test_a_masked_summary_is_sampled_and_not_trained() -> None:
    trajectory, _ = await run(summarize(train_summaries=False), f"s1{END}")
    row = as_row(trajectory.segments[0])
    assert row is not None
    assert row.trained == 2 + 2


async def test_a_window_that_opens_full_ends_instead_of_summing_up_forever() -> None:
    trajectory, engine = await run(
        summarize(last_pair="carry"), f"s1{END}", env=Steps(width=90), window=160
    )
    assert trajectory.stop is Stop.CONTEXT_FULL
    assert len(engine.prompts) <= 4


async def test_one_observation_too_long_for_any_window_ends_the_episode() -> None:
    trajectory, _ = await run(summarize(), env=Steps(width=300))
    assert trajectory.stop is Stop.CONTEXT_FULL
    assert len(trajectory.turns) == 1


async def test_keep_last_reopens_with_the_last_exchanges() -> None:
    trajectory, engine = await run(KeepLast(keep=2, threshold=0.5))
    assert engine.prompts[3] == said(("b", obs(2)), ("c", obs(3)))
    assert engine.prompts[4] == said(("c", obs(3)), ("d", obs(4)))
    assert {s.break_reason for s in trajectory.segments} == {"keep_last_k", ""}
    assert sum(row.trained for s in trajectory.segments if (row := as_row(s))) == 6 * 2


async def test_discard_starts_over_with_the_newest_exchange_or_without() -> None:
    _, engine = await run(Discard(threshold=0.5))
    assert engine.prompts[3] == said(("c", obs(3)))
    _, engine = await run(Discard(carry=False, threshold=0.5))
    assert engine.prompts[3] == said()


async def test_a_template_that_rewrites_history_is_summed_up_too() -> None:
    template = (
        "{{ messages | length }}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "<|im_start|>assistant\n"
    )
    trajectory, engine = await run(
        summarize(last_pair="carry"), f"s1{END}", f"s2{END}", template=template
    )
    assert trajectory.stop is Stop.TERMINATED
    asked = [prompt for prompt in engine.prompts if ASK in prompt]
    assert asked[0].startswith("8<|im_start|>system")  # S begin a o1 b o2 c and the instruction
    assert trajectory.metrics["summaries"] >= 1
    assert sum(row.trained for s in trajectory.segments if (row := as_row(s))) == (
        trajectory.sampled_tokens
    )


BRANCH = '<tool_call>\n{"name": "branch", "arguments": {"prompt": "look"}}\n</tool_call>'
RETURN = '<tool_call>\n{"name": "return_branch", "arguments": {"message": "m"}}\n</tool_call>'


class Folding(Said):
    """Branches, acts twice, returns, returns once more in vain, acts."""

    def _says(self, prompt: str) -> str:
        self.acted += 1
        script = [BRANCH, "a", "b", RETURN, RETURN, "c", "d", "e", "f"]
        return script[self.acted - 1] + END


async def test_a_branch_is_folded_away_when_it_returns() -> None:
    chat, env = chat_format(), Steps(4)
    engine = Folding(chat)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=90), window=2000, context=Fold())
    trajectory = (await play(EnvSession(env), policy)).trajectories[0]
    assert env.actions == ["a", "b", "c", "d"]
    assert [s.break_reason for s in trajectory.segments] == ["fold", ""]
    after = engine.prompts[4]
    assert obs(1) not in after
    assert BRANCH in after
    assert after.endswith(f"<tool_response>\nm\n</tool_response>{END}\n<|im_start|>assistant\n")
    assert "no branch to return from" in engine.prompts[5]
    kinds = [turn.kind.value for turn in trajectory.turns]
    assert kinds == ["fold", "act", "act", "fold", "fold", "act", "act"]
    assert trajectory.ret == 1 + 2 + 3 + 4


# --- the state an episode was cut in --------------------------------------------------------------


def shown(state: list[int]) -> str:
    return str(chat_format().tokenizer.decode(state, skip_special_tokens=False))


@pytest.mark.parametrize(
    ("context", "turns"),
    [
        (summarize(), 1),
        (summarize(), 2),
        (summarize(), 4),  # the turn before was the summary: the state is the window it opens
        (summarize(), 5),
        (summarize(last_pair="carry"), 4),
        (KeepLast(keep=2, threshold=0.5), 2),
        (KeepLast(keep=2, threshold=0.9), 4),
        (Discard(threshold=0.9), 3),
    ],
)
async def test_the_state_after_a_turn_limit_is_what_the_next_turn_would_have_read(
    context: ContextManager, turns: int
) -> None:
    _, whole = await run(context, f"s1{END}", f"s2{END}")
    cut, engine = await run(context, f"s1{END}", f"s2{END}", limits=EpisodeLimits(max_turns=turns))
    assert cut.stop is Stop.MAX_TURNS
    assert len(engine.prompts) == turns
    assert shown(cut.state_ids) == whole.prompts[turns]
    assert [segment.break_reason for segment in cut.segments][-1] == ""


async def test_the_state_after_the_environments_own_limit_shows_its_last_words() -> None:
    class Impatient(Steps):
        def step(self, action: str) -> Step:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, len(self.actions) == 2, info

    cut, _ = await run(summarize(), env=Impatient())
    assert (cut.stop, cut.terminated) == (Stop.MAX_TURNS, False)
    assert shown(cut.state_ids) == said(("a", obs(1)), ("b", obs(2)))


async def test_the_state_of_a_full_window_is_the_window_as_far_as_a_row_goes() -> None:
    full, _ = await run(summarize(max_summaries=1), f"s1{END}", env=Steps(20))
    assert full.stop is Stop.MAX_SUMMARIES
    exchanges = [("d", obs(4)), ("e", obs(5)), ("f", obs(6))]
    assert shown(full.state_ids) == said(*exchanges, opening="begin\n\nSum: s1")
    long, _ = await run(summarize(), env=Steps(width=300), max_length=200)
    assert long.stop is Stop.CONTEXT_FULL
    assert said(("a", obs(1).ljust(300, "."))).startswith(shown(long.state_ids))
    assert len(long.state_ids) == 200


async def test_a_template_that_rewrites_history_renders_the_state_afresh() -> None:
    template = (
        "{{ messages | length }}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "<|im_start|>assistant\n"
    )
    keep = KeepLast(keep=9, threshold=0.9)
    _, whole = await run(keep, template=template, window=2000)
    cut, _ = await run(keep, template=template, window=2000, limits=EpisodeLimits(max_turns=2))
    assert shown(cut.state_ids) == whole.prompts[2]
    assert [segment.break_reason for segment in cut.segments] == ["drift", ""]


async def test_an_episode_that_the_environment_ends_has_no_state_after_it() -> None:
    ended, _ = await run(summarize(), env=Steps(2))
    assert ended.stop is Stop.TERMINATED
    assert ended.state_ids == []


@pytest.mark.parametrize(
    ("context", "window", "max_length", "says"),
    [
        # 13 + "\n\nSum: " 7 + summary 50 + action 8 >= 80
        (summarize(summary_tokens=60), 160, 4000, "no window would hold a step"),
        (summarize(), 40, 4000, "no window would hold a step"),
        (summarize(threshold=0.95), 160, 160, "the engine takes 160"),
        (Discard(threshold=0.5), 40, 4000, "no window would hold a step"),
        (KeepLast(threshold=0.5), 40, 4000, "no window would hold a step"),
    ],
)
def test_settings_that_would_sum_up_forever_are_refused(
    context: ContextManager, window: int, max_length: int, says: str
) -> None:
    chat = chat_format()
    engine = Said(chat, max_length=max_length)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=8), window=window, context=context)
    with pytest.raises(ConfigError, match=says):
        policy.check([system("S"), user("begin")], [])


def test_settings_that_work_are_accepted() -> None:
    chat = chat_format()
    policy = TokenPolicy(Said(chat), chat, Sampling(max_tokens=8), window=160, context=summarize())
    policy.check([system("S"), user("begin")], [])


@pytest.mark.parametrize(
    "fields",
    [
        {"manager": "summarize", "max_summaries": 0},
        {"manager": "summarize", "continuation": "nothing"},
        {"manager": "keep_last_k", "keep": 0},
        {"threshold": 0.0},
        {"threshold": 1.5},
    ],
)
def test_fields_that_cannot_work_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_context(ContextSettings(**fields))


def test_an_unknown_manager_names_the_near_miss() -> None:
    with pytest.raises(UnknownName, match="summarize"):
        make_context(ContextSettings(manager="sumarize"))


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("plain", "plain"),
        ("<summary>a</summary> x <summary>b</summary>", "b"),
        ("<think>t <summary>no</summary></think><summary>b</summary>", "b"),
        ("<think>never ends", ""),
        ("<summary>cut off", "cut off"),
    ],
)
def test_a_summary_is_read_from_what_was_written(text: str, summary: str) -> None:
    assert read_summary(text) == summary


async def test_the_same_seed_is_cut_at_the_same_places() -> None:
    chat = chat_format()
    vocabulary = len(chat.tokenizer)  # type: ignore[arg-type]
    engine = LocalEngine(build_model(vocabulary, hidden=32, layers=2, heads=2, max_length=512))
    policy = TokenPolicy(
        engine, chat, Sampling(max_tokens=8), window=400, context=summarize(last_pair="carry")
    )
    one = (await play(EnvSession(Steps(30)), policy, sampling_seed=5)).trajectories[0]
    two = (await play(EnvSession(Steps(30)), policy, sampling_seed=5)).trajectories[0]
    await engine.close()
    assert len(one.segments) > 2
    assert [s.ids() for s in one.segments] == [s.ids() for s in two.segments]
    assert max(len(s.ids()) for s in one.segments) <= 200 + 8 + 7 + 12
