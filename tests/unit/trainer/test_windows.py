"""Context windows in the trainer: settings, experts that sum up, what is counted."""

from pathlib import Path
from typing import Any

import pytest

from ludus.agent import ChatFormat, Episode, Segment, Stop, Trajectory, Turn, TurnKind
from ludus.agent.context import ContextSettings, make_context
from ludus.agent.parsing import HermesFormat
from ludus.envs import EnvSession, Task, make_async
from ludus.envs.families.ledger import LedgerRelay
from ludus.errors import ConfigError
from ludus.metrics import Stopwatch
from ludus.trainer.config import ModelConfig, RolloutConfig, RunConfig, SFTConfig, TrainConfig
from ludus.trainer.models.tiny import build_tokenizer, write_tiny_policy
from ludus.trainer.open_engine import row_length
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.demonstrations import ExpertPolicy, demonstrate
from ludus.trainer.run.metrics import summarize_step
from ludus.trainer.setup import assemble
from ludus.verdict import Verdict


def settings(**changes: Any) -> ContextSettings:
    fields: dict[str, Any] = {"manager": "summarize", "threshold": 0.6, "summary_tokens": 8}
    fields |= {"last_pair": "carry", "instruction": "Sum", "continuation": "{summary}"}
    return ContextSettings(**(fields | changes))


def config(model: Path, folder: Path, window: int, **changes: Any) -> TrainConfig:
    return TrainConfig(
        env="ludus/ledger-v0",
        recipe="supo",
        model=ModelConfig(path=str(model), device="cpu"),
        rollout=RolloutConfig(window=window, max_tokens=2),
        context=settings(**changes),
        run=RunConfig(folder=str(folder), tensorboard=False),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_policy(folder, hidden=16, layers=1, heads=2, max_length=4096)


async def test_a_window_too_small_for_its_summaries_is_refused_at_the_start(
    model: Path, tmp_path: Path
) -> None:
    # the system prompt alone has over 70 characters, each a token here
    with pytest.raises(ConfigError, match="no window would hold a step"):
        await assemble(config(model, tmp_path, window=150))


async def test_a_window_that_holds_steps_and_a_summary_is_accepted(
    model: Path, tmp_path: Path
) -> None:
    parts = await assemble(config(model, tmp_path, window=400))
    await parts.closing.aclose()


def test_a_row_has_room_for_a_summary_past_the_window(tmp_path: Path) -> None:
    made = config(tmp_path, tmp_path, window=100)
    assert (row_length(made) or 0) >= 100 + 8 + len("Sum")
    plain = TrainConfig(rollout=RolloutConfig(window=100))
    assert row_length(plain) == 100
    assert row_length(TrainConfig()) is None


def test_an_expert_that_sums_up_needs_a_window() -> None:
    with pytest.raises(ConfigError, match="no end"):
        SFTConfig(context=settings())


async def test_an_expert_writes_the_summaries_the_policy_will_be_asked_for() -> None:
    tokenizer: Any = build_tokenizer()
    chat = ChatFormat(tokenizer, HermesFormat())
    session = make_async("ludus/ledger-v0", turns=16, gap=9)
    episode = await demonstrate(
        ExpertPolicy(session, chat, context=make_context(settings()), window=400),
        split="train",
        seed=4,
    )
    (trajectory,) = episode.trajectories
    assert trajectory.ret == 1.0
    assert trajectory.metrics["summaries"] == len(trajectory.segments) - 1 >= 2
    env = session.env
    assert isinstance(env, LedgerRelay)
    shown: dict[str, str] = {}
    for turn in trajectory.turns:
        said = [message.text for message in turn.observation]
        if turn.kind is TurnKind.SUMMARY:
            assert turn.message is not None
            assert turn.message.text == "".join(n + shown[n] for n in sorted(shown))
            assert said == ["Sum"]
        else:
            writes = [text for text in said if len(text) == 2 and text[1].isdigit()]
            shown |= {text[0]: text[1] for text in writes}
    # what a summary says is what the next window opens with
    for before, after in zip(trajectory.segments, trajectory.segments[1:], strict=False):
        written = before.turns[-1].message
        assert written is not None
        assert f"go\n\n{written.text}" in tokenizer.decode(after.prompt_ids)


class Silent(LedgerRelay):
    """Acts, and has nothing to say about it."""

    def demonstrate_summary(self, *, newest: bool) -> Any:
        return None


async def test_a_demonstration_that_outgrows_its_window_is_refused() -> None:
    chat = ChatFormat(build_tokenizer(), HermesFormat())  # type: ignore[arg-type]
    session = make_async("ludus/ledger-v0")
    with pytest.raises(ConfigError, match="context_full"):
        await demonstrate(ExpertPolicy(session, chat, window=300), split="train", seed=0)


async def test_environments_without_an_expert_for_summaries_say_so() -> None:
    chat = ChatFormat(build_tokenizer(), HermesFormat())  # type: ignore[arg-type]
    session = EnvSession(Silent(turns=16, gap=9))
    with pytest.raises(ConfigError, match=r"demonstrate_summary\(\) returned None"):
        await demonstrate(
            ExpertPolicy(session, chat, context=make_context(settings()), window=500),
            split="train",
            seed=0,
        )


def trajectory(reward: float, *turns: Turn, stop: Stop = Stop.TERMINATED) -> Trajectory:
    written = sum(turn.kind is TurnKind.SUMMARY for turn in turns)
    return Trajectory(
        verdict=Verdict.of(reward),
        stop=stop,
        segments=[Segment(prompt_ids=[1], turns=list(turns))],
        metrics={"summaries": float(written)} if written else {},
    )


def test_numbers_by_kind_of_span() -> None:
    act = Turn(out_ids=[1, 2], logprobs=[-0.5, -1.5])
    summary = Turn(kind=TurnKind.SUMMARY, out_ids=[3, 4, 5, 6], logprobs=[-0.25] * 4)
    episodes = [
        trajectory(1.0, act, summary, act),
        trajectory(0.0, act, summary, stop=Stop.MAX_SUMMARIES),
        trajectory(1.0, act),
        trajectory(0.0, act, stop=Stop.MAX_TURNS),
    ]
    group = Group(
        Task(id="t", split="train"), [Episode(task="t", trajectories=[one]) for one in episodes], 0
    )
    numbers = summarize_step([group], {}, Stopwatch(), {})
    assert numbers["context/p_sum"] == 2 / 4
    assert numbers["context/p_success_sum"] == 1 / 2
    assert numbers["context/overlong"] == 2 / 4
    assert numbers["stop/max_summaries"] == numbers["stop/max_turns"] == 1 / 4
    assert numbers["kind/act_tokens"] == (4 + 2 + 2 + 2) / 4
    assert numbers["kind/summary_tokens"] == (4 + 4) / 4
    assert numbers["kind/act_entropy"] == pytest.approx(1.0)  # mean of 0.5 and 1.5
    assert numbers["kind/summary_entropy"] == pytest.approx(0.25)
    assert numbers["episode/summaries"] == 2 / 4
