"""Images in episodes of several windows, and the models that are refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.agent import ChatFormat, Episode, Sampling, TokenPolicy, play
from ludus.agent.context import ContextSettings, make_context
from ludus.agent.images import images_of
from ludus.agent.parsing import tool_format
from ludus.envs import make_async
from ludus.errors import ConfigError
from ludus.messages import ImagePart
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.images import ImageReader
from ludus.trainer.models.loading import load_images, load_model, load_tokenizer
from ludus.trainer.models.tiny import write_tiny_policy, write_tiny_vision_policy
from ludus.trainer.rollout.batch import as_row, pad
from ludus.trainer.rollout.demonstrations import ExpertPolicy, demonstrate
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training

PAGES = "ludus/shapes-v0?ask=count&pages=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_vision_policy(tmp_path_factory.mktemp("policy"), hidden=48, heads=2)


@pytest.fixture(scope="module")
def reader(folder: Path) -> ImageReader:
    found = load_images(folder, load_tokenizer(folder))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def chat(folder: Path, reader: ImageReader) -> ChatFormat:
    return ChatFormat(load_tokenizer(folder), tool_format("hermes"), images=reader)


def check_rows(episode: Episode, reader: ImageReader) -> list[list[ImagePart]]:
    """Every placeholder of a prompt belongs to an image, and every image stands on its own."""
    windows: list[list[ImagePart]] = []
    for segment in episode.trajectories[0].segments:
        ids, images = segment.ids(), segment.images()
        places = [place for one in images for place in range(one.start, one.end)]
        assert len(set(places)) == len(places)
        sampled = {place for start, turn in segment.spans() for place in range(
            start, start + len(turn.out_ids))}  # fmt: skip
        shown = {i for i, one in enumerate(ids) if one == reader.token_id} - sampled
        assert set(places) == shown
        windows.append([one.image for one in images])
    return windows


@pytest.mark.parametrize("manager", ["none", "summarize", "keep_last_k", "discard"])
async def test_images_stay_with_their_messages_in_every_window(
    chat: ChatFormat, reader: ImageReader, folder: Path, manager: str
) -> None:
    session = make_async("ludus/shapes-v0", ask="count", pages=8, max_things=1, size=64)
    settings = ContextSettings(manager=manager, keep=1, summary_tokens=200, last_pair="carry")
    episode = await demonstrate(
        ExpertPolicy(
            session, chat, context=make_context(settings), window=None if manager == "none" else 420
        ),
        split="train",
        seed=3,
    )
    windows = check_rows(episode, reader)
    (trajectory,) = episode.trajectories
    assert trajectory.ret == 1.0
    seen = images_of([one for turn in trajectory.turns for one in turn.observation])
    assert len({image.data for image in seen}) == 8
    if manager == "none":
        assert windows == [seen]
    else:
        assert len(windows) > 1
        assert all(window[0] == seen[0] for window in windows)  # the first prompt's, in each
        assert all(len(window) < 8 for window in windows)
    # rows with these images can be scored and trained
    rows = [row for one in trajectory.segments if (row := as_row(one)) is not None]
    learner = Learner(load_model(folder), TrainerConfig(), ReadingOptions(images=reader))
    scored = learner.score(pad(rows))
    assert bool((scored[pad(rows).mask.bool()] < 0).all())


async def test_what_a_policy_samples_is_what_the_learner_sees(
    chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    engine = LocalEngine(load_model(folder), images=reader)
    policy = TokenPolicy(engine, chat, Sampling(max_tokens=12))
    session = make_async("ludus/shapes-v0", pages=3, size=64)
    episodes = [await play(session, policy, seed=seed, sampling_seed=seed) for seed in range(4)]
    await engine.close()
    learner = Learner(load_model(folder), TrainerConfig(), ReadingOptions(images=reader))
    for episode in episodes:
        assert episode.trajectories[0].verdict.ok
        assert check_rows(episode, reader)[0]
        rows = [row for one in episode.trajectories[0].segments if (row := as_row(one))]
        batch = pad(rows)
        off = ((learner.score(batch) - batch.sampler_logp) * batch.mask).abs().max()
        assert float(off) < 1e-4


async def test_a_state_that_was_cut_keeps_whole_images(
    chat: ChatFormat, reader: ImageReader, folder: Path
) -> None:
    session = make_async("ludus/shapes-v0", pages=3, size=64)
    engine = LocalEngine(load_model(folder), EngineLimits(max_length=300), images=reader)
    player = TokenPolicy(engine, chat, Sampling(max_tokens=8)).begin()
    observation, info = await session.reset(seed=0)
    from ludus.agent import opening_of
    from ludus.messages import as_messages, assistant

    messages = opening_of(info["briefing"], observation)
    turn = await player.act(messages, info["briefing"].tools)
    assert not isinstance(turn, str)
    messages += [assistant("x"), *as_messages(observation)]
    ids = chat.prompt(messages, info["briefing"].tools)
    before, first = player.state_ids, chat.placed(ids, messages)[0]
    player.read_on(messages, info["briefing"].tools)
    whole, shown = list(player.state_ids), list(player.state_images)
    assert before == []
    assert len(shown) == 2
    # a row that ends inside the second image ends before it
    player._row = shown[1].start + 2  # pyright: ignore[reportPrivateUsage]
    player.read_on(messages, info["briefing"].tools)
    assert player.state_ids == whole[: shown[1].start]
    assert player.state_images == [first] == shown[:1]
    await engine.close()


def with_model(path: Path, tmp_path: Path, env: str, **context: str) -> TrainConfig:
    return TrainConfig(
        env=env,
        steps=1,
        model=ModelConfig(path=str(path), device="cpu"),
        rollout=RolloutConfig(tasks_per_step=1, group_size=2, max_tokens=4),
        eval=EvalConfig(tasks=1),
        run=RunConfig(folder=str(tmp_path / "run"), tensorboard=False),
    )


async def test_a_text_model_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    path = write_tiny_policy(tmp_path / "text", hidden=16, heads=2)
    with pytest.raises(ConfigError, match="ludus/shapes-v0 shows images, and this model reads"):
        await run_training(with_model(path, tmp_path, PAGES))
    sft = SFTConfig(
        env=PAGES,
        steps=1,
        model=ModelConfig(path=str(path), device="cpu"),
        run=RunConfig(folder=str(tmp_path / "sft"), tensorboard=False),
    )
    with pytest.raises(ConfigError, match="ludus/shapes-v0 shows images, and this model reads"):
        await run_sft(sft)
    # the picture after the only try of image-prompt is for the verifier: no policy answers it
    tried = with_model(path, tmp_path / "tried", "ludus/image-prompt-v0?tries=2")
    with pytest.raises(ConfigError, match="image-prompt-v0 shows images"):
        await run_training(tried)


@pytest.mark.slow
async def test_words_alone_suffice_where_no_picture_is_for_the_policy(tmp_path: Path) -> None:
    path = write_tiny_policy(tmp_path / "text", hidden=16, heads=2)
    for number, env in enumerate(("", "?tries=2&pictures=false")):
        config = with_model(path, tmp_path / str(number), f"ludus/image-prompt-v0{env}")
        assert (await run_training(config)).step == 1
