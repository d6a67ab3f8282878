"""Each context manager on an episode that was worked out by hand: what every window shows."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

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
from ludus.agent.context import (
    ClearToolResults,
    Composed,
    ContextManager,
    EngineSummariser,
    Fold,
    FoldSteps,
    InternalState,
    KeepLast,
    MemAgent,
    MemoryTool,
    Records,
    ReSum,
    Summarize,
)
from ludus.agent.context.fold import BRANCH, OPENED, RETURN
from ludus.agent.context.memagent import split_text
from ludus.agent.context.protocol import REFUSED, History, tagged
from ludus.agent.images import PlacedImage
from ludus.agent.parsing import HermesFormat
from ludus.envs import EnvSession, TextEnv, ToolSpec, tool
from ludus.envs.protocol import Reset, Step
from ludus.errors import ConfigError, RemoteError
from ludus.messages import Message, ToolCall, assistant, user
from ludus.trainer.models.tiny import build_tokenizer

END = "<|im_end|>"
PROMPT = "<|im_start|>assistant\n"
ASK = "Update."


class Shelves(TextEnv):
    """`look` shows r1, r2 ... of 20 characters, words are answered by w1, w2 ..."""

    system_prompt = "S"

    def __init__(self, first: str = "begin") -> None:
        self.first, self.count = first, 0
        self.heard: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.first, {}

    @tool
    def look(self, at: str = "") -> str:
        """Look.

        Args:
            at: where
        """
        self.heard.append(f"look {at}".strip())
        self.count += 1
        return f"r{self.count}".ljust(20, ".")

    def step(self, action: str) -> Step:
        self.heard.append(action)
        self.count += 1
        return f"w{self.count}".ljust(20, "."), 1.0, action == "end", False, {}


class Script:
    """An engine that says its lines, then `end`; where a text is asked for, m1, m2 and so on."""

    version, max_length = 0, 5000

    def __init__(self, chat: ChatFormat, lines: Sequence[str]) -> None:
        self.chat, self.lines = chat, list(lines)
        self.prompts: list[str] = []
        self.texts = 0

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        self.prompts.append(self.chat.tokenizer.decode(list(ids), skip_special_tokens=False))
        said = self.chat.tokenizer.encode(self._says() + END, add_special_tokens=False)
        said = said[: sampling.max_tokens]
        return Generation(
            ids=said,
            logprobs=[-1.0] * len(said),
            finish=Finish.STOP if said[-1] in sampling.stop_token_ids else Finish.LENGTH,
            versions=[0] * len(said),
        )

    def _says(self) -> str:
        if self.prompts[-1].endswith(f"{ASK}{END}\n{PROMPT}"):
            self.texts += 1
            return f"m{self.texts}"
        return self.lines.pop(0) if self.lines else "end"

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        return [0.0] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


LOOK = call("look")


def chat_format() -> ChatFormat:
    tokenizer: Any = build_tokenizer([LOOK, "system\n", "user\n", "assistant\n"])
    return ChatFormat(tokenizer, HermesFormat())


async def run(
    context: ContextManager,
    *lines: str,
    window: int = 2000,
    first: str = "begin",
    max_tokens: int = 300,
) -> tuple[Trajectory, list[str], Shelves]:
    chat, env = chat_format(), Shelves(first)
    engine = Script(chat, lines)
    policy = TokenPolicy(
        engine, chat, Sampling(max_tokens=max_tokens), window=window, context=context
    )
    episode = await play(EnvSession(env), policy)
    return episode.trajectories[0], engine.prompts, env


def reasons(trajectory: Trajectory) -> list[str]:
    return [segment.break_reason for segment in trajectory.segments]


@given(st.lists(st.sampled_from(["<IS>", "</IS>", "a", " ", "\n", "<I", "S>"])).map("".join))
def test_tags_are_those_of_the_pattern_and_unclosed_ones_cost_no_more(text: str) -> None:
    pattern = re.compile(r"<IS>(.*?)</IS>\s*", re.DOTALL)
    assert tagged(text, "IS") == (pattern.findall(text), pattern.sub("", text))
    looped = "<IS>" * 200_000  # hours by the pattern
    assert tagged(looped, "IS") == ([], looped)


# --- clear ----------------------------------------------------------------------------------------


async def test_old_results_are_replaced_and_the_words_stay() -> None:
    context = ClearToolResults(keep=1, max_tool_uses=2, placeholder="(gone)")
    made, prompts, _ = await run(context, LOOK, LOOK, "a", LOOK, "b")
    assert reasons(made) == ["clear", ""]
    before, after = prompts[3], prompts[4]
    assert "r1" in before
    assert "w3" in before
    assert after.count("(gone)") == 2
    assert "r1." not in after
    assert "r2." not in after
    assert "w3." in after  # no tool's result
    assert "r4." in after
    assert after.count(LOOK) == 3


async def test_a_full_window_is_cleared_and_excluded_tools_are_not() -> None:
    # S, begin and their marks have 15 tokens; a call and its result 26 + 4 + 33 and more.
    context = ClearToolResults(keep=0, threshold=0.5, placeholder="-")
    made, prompts, _ = await run(context, *[LOOK] * 6, window=300)
    assert made.stop is Stop.TERMINATED
    assert "clear" in reasons(made)
    assert "r1." not in prompts[5]
    kept = ClearToolResults(keep=0, threshold=0.5, exclude_tools=("look",))
    made, _, _ = await run(kept, LOOK, LOOK, LOOK, LOOK, LOOK, LOOK, LOOK, LOOK, window=300)
    assert made.stop is Stop.CONTEXT_FULL


async def test_a_clearing_that_saves_too_little_is_not_made() -> None:
    def context(tokens: int) -> ClearToolResults:
        return ClearToolResults(keep=1, max_tool_uses=1, clear_at_least=tokens, placeholder="-")

    # one result of 20 tokens becomes one token
    made, _, _ = await run(context(19), LOOK, LOOK)
    assert reasons(made) == ["clear", ""]
    made, _, _ = await run(context(20), LOOK, LOOK)
    assert reasons(made) == [""]


async def test_the_arguments_of_cleared_calls_can_go_too() -> None:
    context = ClearToolResults(keep=1, max_tool_uses=1, clear_inputs=True)
    lines = [call("look", f'{{"at": "{place}"}}') for place in ("attic", "cellar")]
    _, prompts, env = await run(context, *lines)
    assert "attic" not in prompts[2]
    assert "cellar" in prompts[2]
    assert env.heard[:2] == ["look attic", "look cellar"]


# --- memory ---------------------------------------------------------------------------------------

SAVE = call("memory", '{"command": "create", "path": "/memories/n", "file_text": "a5"}')
SHOW = call("memory", '{"command": "view", "path": "/memories/n"}')


async def test_files_outlive_the_window_and_are_listed() -> None:
    context = MemoryTool(threshold=0.5, carry=False)
    made, prompts, env = await run(context, SAVE, "a", "b", "c", "d", "e", SHOW, window=400)
    assert made.stop is Stop.TERMINATED
    assert "memory" in reasons(made)
    reopened = next(prompt for prompt in prompts if "Your files:" in prompt)
    assert "begin\n\nYour files:\n/memories/n (2 characters)" in reopened
    assert "w1." not in reopened
    assert "   1\ta5" in prompts[-1]  # read before the window is started over
    assert env.heard == ["a", "b", "c", "d", "e", "end"]
    kinds = [turn.kind for turn in made.turns]
    assert kinds.count(TurnKind.FOLD) == 2


async def test_memory_and_a_tool_in_one_turn_run_neither() -> None:
    _, prompts, env = await run(MemoryTool(), SAVE + LOOK, SHOW)
    assert prompts[1].count("call memory without other tools beside it") == 2
    assert "there is no file" in prompts[2] or "nothing at" in prompts[2]
    assert env.heard == ["end"]


# --- records --------------------------------------------------------------------------------------


async def test_what_has_left_the_view_is_indexed_and_fetched_by_number() -> None:
    context = Records(keep=1, threshold=0.5, record_chars=12)
    fetch = call("fetch_record", '{"id": 2}')
    made, prompts, env = await run(context, *"abcdefgh", fetch, window=480)
    assert reasons(made)[0] == "records"
    at = next(index for index, prompt in enumerate(prompts) if "Records of" in prompt)
    assert "1: a -> w1..\n2: b -> w2.." in prompts[at]
    assert f"w{at}." in prompts[at]  # the newest is kept
    whole = "w2".ljust(20, ".")
    assert whole not in prompts[8]
    assert f"b ->\n{whole}" in prompts[9]
    assert env.heard == [*"abcdefgh", "end"]


@pytest.mark.parametrize("number", ["0", "9", '"2"', "null", "true"])
async def test_a_record_that_is_not_there_is_said(number: str) -> None:
    _, prompts, _ = await run(Records(), "a", call("fetch_record", f'{{"id": {number}}}'))
    assert "there are records 1 to 1" in prompts[2]


# --- state rewriting ------------------------------------------------------------------------------


async def test_mem1_shows_the_state_and_the_newest_exchange_alone() -> None:
    made, prompts, env = await run(
        InternalState("Note."), "<IS>one</IS>a", "<IS>two</IS>b", "<IS></IS>c"
    )
    assert env.heard == ["a", "b", "c", "end"]
    assert reasons(made) == ["mem1", "mem1", "mem1", ""]
    exchange = "{0}" + END + "\n<|im_start|>user\n{1}" + END + "\n" + PROMPT
    assert prompts[0].endswith(f"begin\n\nNote.{END}\n{PROMPT}")
    first = f"begin\n\nNote.\n\n<IS>one</IS>{END}\n{PROMPT}"
    assert prompts[1].endswith(first + exchange.format("a", "w1".ljust(20, ".")))
    assert "one" not in prompts[2]
    assert "<IS>two</IS>" in prompts[2]
    assert "<IS>" not in prompts[3]  # what was not written down is gone
    # the whole action is trained, state included
    assert all(
        turn.out_ids[-1] == made.turns[0].out_ids[-1] and turn.trained for turn in made.turns
    )
    said = made.turns[0].message
    assert said is not None
    assert said.text == "<IS>one</IS>a"


async def test_a_call_inside_the_state_never_runs() -> None:
    _, _, env = await run(InternalState(), f"<IS>{LOOK}</IS>a", f"<IS>x</IS>{LOOK}")
    assert env.heard == ["a", "look", "end"]


def compress(first: int, last: int, text: str) -> str:
    return (
        f'<compress>{{"compress_range": [{first}, {last}], "compress_text": "{text}"}}</compress>'
    )


async def test_agent_fold_joins_the_steps_that_a_directive_names() -> None:
    _, prompts, env = await run(
        FoldSteps("Fold."),
        "a",
        compress(1, 1, "one") + "b",
        compress(2, 2, "two") + "c",
        compress(2, 3, "both") + "d",
        compress(1, 4, "all") + "e",
    )
    assert env.heard == ["a", "b", "c", "d", "e", "end"]
    blocks = [prompt.split("Fold.")[1].split(END)[0] for prompt in prompts]
    assert blocks == [
        "",
        "",
        "\nStep 1: one",
        "\nStep 1: one\nStep 2: two",
        "\nStep 1: one\nSteps 2 to 3: both",
        "\nSteps 1 to 4: all",
    ]
    assert "w4." in prompts[4]
    assert "w3." not in prompts[4]


@pytest.mark.parametrize(
    "bad",
    ["", compress(3, 2, "x"), compress(1, 1, "x"), "<compress>[1]</compress>", compress(7, 2, "x")],
)
async def test_agent_fold_pays_for_a_directive_that_cannot_be_read(bad: str) -> None:
    _, prompts, env = await run(FoldSteps("Fold."), "a", compress(1, 1, "one") + "b", bad + "c")
    assert "Step 1: one\nStep 2: (nothing was kept)" in prompts[3]
    assert env.heard[2] == "c"


@pytest.mark.parametrize("bad", ['{"a": ' + "[" * 20_000, "\ud800"], ids=["nested", "half a pair"])
def test_agent_fold_raises_at_nothing_that_a_policy_writes(bad: str) -> None:
    manager = FoldSteps("Fold.").begin()
    history = History((user("begin"), assistant("a"), user("b")), (1,))
    assert manager.hear(f"<compress>{bad}</compress>c", history) == "c"
    assert manager.opens([], history)[0].text == "Fold.\nStep 1: (nothing was kept)"


@pytest.mark.parametrize("said", [OPENED, REFUSED, f"{REFUSED}: not so", "found"])
def test_no_result_of_a_branch_hides_that_the_branch_was_used(said: str) -> None:
    manager, view = Fold(max_summaries=2), [user("begin")]

    def call(tool: ToolSpec, **arguments: str) -> str:
        action = assistant("", [ToolCall(name=tool.name, arguments=arguments)])
        handled = manager.handle(action, History(tuple(view), view=tuple(view)))
        assert handled is not None
        view[:] = handled.messages if handled.reopen else [*view, action, *handled.messages]
        return view[-1].text

    opened = 0
    while opened < 5 and "branches are used" not in call(BRANCH, prompt="look"):
        opened += 1
        if call(RETURN, message=said) != said:
            assert call(RETURN, message="found") == "found"
    assert opened == 2


# --- memagent -------------------------------------------------------------------------------------


def letters(messages: Sequence[Message]) -> int:
    return sum(len(one.text) for one in messages)


@pytest.mark.parametrize("text", ["", "word", "x" * 25, "a b\nc " * 9, "αβγ " * 12])
def test_chunks_are_the_text_and_none_is_too_long(text: str) -> None:
    chunks = split_text(text, 10, letters)
    assert "".join(chunks) == text
    assert all(0 < len(chunk) <= 10 for chunk in chunks)
    assert len(chunks) <= len(text) // 5 + 1


async def test_a_document_is_read_in_chunks_each_in_a_context_of_its_own() -> None:
    document = "aaaa bbbb cccc dddd eeee ffff "
    context = MemAgent(chunk_tokens=22, summary_tokens=10, instruction=ASK)
    first = f"Who? <document>{document}</document>"
    made, prompts, env = await run(context, "a", first=first)
    # a chunk of 22 tokens has as many letters: marks and tools do not count
    head = "Who? <document>(this part was read in sections; the memory holds what was kept)"
    assert [prompt.count(head) for prompt in prompts] == [1, 1, 1, 1]
    sections = [prompt.partition("Section ")[2].split(END)[0] for prompt in prompts]
    assert len(sections) == 4
    assert sections[0].startswith("1 of 2:\naaaa bbbb cccc dddd \n")
    assert sections[1].startswith("2 of 2:\n")
    assert sections[1].endswith("\n\nUpdate.")
    assert sections[2:] == ["", ""]
    assert ["Memory:\nm1" in prompt for prompt in prompts] == [False, True, False, False]
    assert "Memory:\nm2" in prompts[2]
    assert "aaaa" not in prompts[1] + prompts[2]
    assert env.heard == ["a", "end"]
    assert reasons(made) == ["memagent", "memagent", ""]
    kinds = [turn.kind for turn in made.turns]
    assert kinds == [TurnKind.SUMMARY, TurnKind.SUMMARY, TurnKind.ACT, TurnKind.ACT]
    assert all(turn.trained for turn in made.turns)


class Brief(Shelves):
    max_turns = 1


async def test_a_document_of_many_chunks_leaves_an_episode_of_one_turn_its_answer() -> None:
    chat, document = chat_format(), " ".join(["word"] * 30)
    env = Brief(f"Who? <document>{document}</document>")
    context = MemAgent(chunk_tokens=22, summary_tokens=10, instruction=ASK)
    policy = TokenPolicy(
        Script(chat, ["a"]), chat, Sampling(max_tokens=300), window=2000, context=context
    )
    made = (await play(EnvSession(env), policy)).trajectories[0]
    kinds = [turn.kind for turn in made.turns]
    assert kinds.count(TurnKind.SUMMARY) > 3
    assert kinds[-1] is TurnKind.ACT
    assert env.heard == ["a"]


async def test_a_long_answer_is_read_in_chunks_too_and_a_full_window_is_one() -> None:
    context = MemAgent(chunk_tokens=12, summary_tokens=10, instruction=ASK, threshold=0.5)
    made, prompts, _ = await run(context, "a", *["b"] * 9, first="go", window=300)
    assert "Section 1 of" in prompts[1]
    assert any("Memory:" in prompt for prompt in prompts)
    assert made.verdict.ok


async def test_documents_that_leave_no_room_for_a_memory_are_refused() -> None:
    chat = chat_format()
    policy = TokenPolicy(
        Script(chat, []), chat, Sampling(max_tokens=8), window=120, context=MemAgent(100, 20)
    )
    first = [user("<document>" + "long " * 90 + "</document>")]
    with pytest.raises(ConfigError, match=r"lower context\.chunk_tokens"):
        policy.check(first, [])


# --- resum ----------------------------------------------------------------------------------------


class Scribe:
    """Another model: repeats how many results it was shown, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked, self.closed = error, list[str](), 0

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        if self.error is not None:
            raise self.error
        self.asked.append(messages[-1].text)
        return f"<summary>{messages[-1].text.count('w')} seen</summary>"

    async def close(self) -> None:
        self.closed += 1


async def test_the_other_models_summary_is_shown_and_not_trained() -> None:
    scribe = Scribe()
    context = ReSum(scribe, every=2, continuation="So far: {summary}")
    made, prompts, env = await run(context, "a", "b", "c")
    assert reasons(made) == ["resum", ""]
    assert prompts[2].endswith(f"begin\n\nSo far: 2 seen{END}\n{PROMPT}")
    assert "[assistant] a" in scribe.asked[0]
    assert env.heard == ["a", "b", "c", "end"]
    assert [turn.kind for turn in made.turns] == [TurnKind.ACT] * 4
    assert made.sampled_tokens == sum(len(turn.out_ids) for turn in made.turns)
    await context.close()
    assert scribe.closed == 1


async def test_a_summariser_that_fails_ends_the_episode_without_a_reward() -> None:
    made, _, _ = await run(ReSum(Scribe(RemoteError("down")), every=1), "a", "b")
    assert made.stop is Stop.POLICY_ERROR
    assert made.verdict.reward is None
    assert made.exclude_from_loss
    assert made.exclude_from_baseline


async def test_an_engine_with_its_own_weights_can_summarise() -> None:
    chat = chat_format()
    writer = Script(chat, ["<summary>from the engine</summary>"])
    context = ReSum(EngineSummariser(writer, chat), every=1, max_summaries=1, summary_tokens=60)
    _, prompts, _ = await run(context, "a", "b")
    assert "from the engine" in prompts[1]
    assert "The conversation of the agent" in writer.prompts[0]


async def test_after_all_summaries_a_full_window_ends_the_episode() -> None:
    made, _, _ = await run(ReSum(Scribe(), max_summaries=1), *["a"] * 20, window=160)
    assert made.stop is Stop.MAX_SUMMARIES


# --- compositions ---------------------------------------------------------------------------------


def short_summary(*, max_summaries: int = 7, threshold: float = 0.7) -> Summarize:
    return Summarize(
        threshold=threshold,
        max_summaries=max_summaries,
        summary_tokens=20,
        instruction=ASK,
        continuation="Sum: {summary}",
    )


async def test_the_first_manager_that_helps_decides() -> None:
    clear = ClearToolResults(keep=0, threshold=0.7, placeholder="-")
    made, _, _ = await run(
        Composed([clear, short_summary()]), LOOK, LOOK, LOOK, LOOK, LOOK, "a", window=260
    )
    assert reasons(made)[0] == "clear"
    made, _, _ = await run(Composed([clear, short_summary()]), *["a"] * 9, window=230)
    assert reasons(made)[0] == "summary"  # no result to clear


async def test_a_stage_that_is_used_up_passes_on() -> None:
    """After one summary the last exchanges are kept instead."""
    both = Composed([short_summary(max_summaries=1), KeepLast(keep=1, threshold=0.7)])
    made, _, _ = await run(both, *[LOOK] * 12, window=260)
    assert reasons(made)[:2] == ["summary", "keep_last_k"]
    assert made.stop is Stop.TERMINATED


async def test_the_limit_of_each_manager_is_its_own() -> None:
    """Clearing begins at half of the window, the summary at nine tenths."""
    clear = ClearToolResults(keep=0, threshold=0.5, placeholder="-")
    both = Composed([clear, short_summary(threshold=0.9)])
    made, prompts, _ = await run(both, *[LOOK] * 3, *["a"] * 9, window=300)
    lengths = [len(segment.ids()) for segment in made.segments]
    assert reasons(made)[:2] == ["clear", "summary"]
    assert lengths[0] < 0.75 * 300 < lengths[1]
    assert prompts


async def test_memory_leaves_full_windows_to_the_others_and_is_the_last_resort() -> None:
    context = Composed([MemoryTool(threshold=0.7), short_summary(max_summaries=1)])
    made, _, _ = await run(context, *[LOOK] * 12, window=400)
    assert reasons(made)[:2] == ["summary", "memory"]


async def test_files_are_listed_in_the_window_after_a_summary() -> None:
    both = Composed([MemoryTool(), short_summary()])
    made, prompts, _ = await run(both, SAVE, *["a"] * 9, window=400)
    assert "summary" in reasons(made)
    after = next(prompt for prompt in prompts if "Sum: m1" in prompt)
    assert "Your files:\n/memories/n (2 characters)\n\nSum: m1" in after
