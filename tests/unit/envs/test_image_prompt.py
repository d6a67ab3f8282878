"""Image prompts: what is drawn, what is seen, and what it is worth."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus.agent import ScriptedPolicy, play, write_episodes
from ludus.agent.viewer import PageHead, RunReader, page_of
from ludus.envs import EnvSession, make_async
from ludus.envs.families.image_prompt import ImagePrompt, Pixels, ShapeRenderer
from ludus.envs.families.image_prompt.pictures import png_of, seen
from ludus.envs.families.image_prompt.scenes import (
    COLOURS,
    NUMBERS,
    PLACES,
    SAID_COLOURS,
    SAID_COUNTS,
    SAID_PLACES,
    SAID_SHAPES,
    SHAPES,
    SceneObject,
    likeness,
    told,
)
from ludus.envs.serving.connect import connect
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, RewardUnavailable, UnknownVerifier
from ludus.messages import ImagePart, as_messages
from ludus.rewards import Sample
from ludus.rewards.registry import register_verifier
from ludus.trainer.rollout.scoring import as_sample
from ludus.verdict import Verdict
from ludus.wire.server import BackgroundServer, HttpServer


def shown(prompt: str, size: int = 96) -> str:
    return told(seen(ShapeRenderer(size=size).generate(prompt)))


@pytest.mark.parametrize(
    ("prompt", "things"),
    [
        ("2 red circle top left, 1 blue square center",
         "2 red circle top left, 1 blue square center"),
        ("three Green TRIANGLES in the bottom right", "3 green triangle bottom right"),
        ("center black circles 4", "4 black circle center"),
        ("a red circle and a red square top right", "1 red circle center, 1 red square top right"),
        ("square", "1 grey square center"),
        ("a crimson circle top left", "1 grey circle top left"),
        ("99 red circles", "1 red circle center"),
        ("red top left", "nothing"),
        ("", "nothing"),
        ("\x00\ud800 ;;; , and and", "nothing"),
        ("bottom top left red circle", "1 red circle top left"),
    ],
)  # fmt: skip
def test_a_prompt_is_drawn_by_the_words_that_are_known(prompt: str, things: str) -> None:
    assert shown(prompt) == things


@pytest.mark.parametrize(
    "size", [48, 131, *(pytest.param(size, marks=pytest.mark.slow) for size in (50, 64, 96, 256))]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_seen_in_every_colour_and_place(shape: str, size: int) -> None:
    for colour in COLOURS:
        for place in PLACES:
            for count in (1, 2, 3, 4):
                prompt = f"{count} {colour} {shape} {place}"
                assert shown(prompt, size) == prompt


def test_pixels_are_judged_and_not_the_words_behind_them() -> None:
    """A circle, a square and a triangle drawn here by hand."""
    pixels = np.full((90, 90, 3), 255, np.uint8)
    rows, columns = np.mgrid[0:90, 0:90]
    pixels[(rows - 15) ** 2 + (columns - 15) ** 2 < 100] = (220, 45, 50)  # nearly red
    pixels[62:82, 62:82] = (30, 90, 190)
    pixels[(rows > 35) & (rows < 55) & (np.abs(columns - 45) <= (rows - 35) / 2)] = (20, 20, 20)
    pixels[5, 85] = (0, 0, 0)  # a speck
    assert told(seen(pixels)) == (
        "1 red circle top left, 1 blue square bottom right, 1 black triangle center"
    )


def test_a_picture_of_noise_is_read_in_bounds() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    assert len(seen(noise)) <= 128


def test_likeness_counts_what_is_missing_and_what_is_too_much() -> None:
    circle, square = SceneObject("circle", "red", "center"), SceneObject("square", "red", "center")
    assert likeness([circle, circle], [circle, circle]) == 1.0
    assert likeness([circle, circle], [circle]) == 0.5
    assert likeness([circle], [circle, square, square]) == pytest.approx(1 / 3)
    assert likeness([circle], [square]) == 0.0


def test_a_png_holds_the_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    data = png_of(pixels)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (7, 5)
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + length]), np.uint8).reshape(5, 22)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(5, 7, 3) == pixels).all()
    with pytest.raises(ValueError, match="an image is"):
        png_of(np.zeros((5, 7), np.uint8))


def test_a_png_is_read_by_others() -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = ShapeRenderer().generate("2 red circle top left")
    opened = image.open(io.BytesIO(png_of(pixels)))
    assert (np.asarray(opened.convert("RGB")) == pixels).all()


def test_no_word_of_a_request_is_known_to_the_renderer() -> None:
    said = " ".join(
        text
        for table in (SAID_COLOURS, SAID_SHAPES, SAID_PLACES, SAID_COUNTS)
        for texts in table.values()
        for text in texts
    )
    known = {*COLOURS, *SHAPES, *NUMBERS}
    assert not known & {word.removesuffix("s") for word in said.split()}
    assert not any(place in said for place in PLACES)


def test_no_scene_is_in_two_splits() -> None:
    env = ImagePrompt(clusters=1)
    problems = {
        split: {env.tasks(split).at(index).problem for index in range(300)}
        for split in ("train", "validation", "test")
    }
    assert len(problems["test"]) < 60 < 150 < len(problems["train"])
    assert not problems["train"] & problems["test"]
    assert not problems["train"] & problems["validation"]
    assert not problems["validation"] & problems["test"]


async def begun(env: ImagePrompt, index: int = 0) -> EnvSession:
    session = EnvSession(env)
    await session.reset(seed=0, options={"task": f"test/{index}", "split": "test"})
    return session


async def test_the_expert_is_right_on_every_task() -> None:
    env = ImagePrompt(clusters=5)
    for index in range(40):
        session = await begun(env, index)
        observation, reward, terminated, *_ = await session.step(env.demonstrate())
        assert (reward, terminated) == (1.0, True)
        (picture,) = as_messages(observation)[-1].images
        assert picture.data.startswith(b"\x89PNG")


async def test_a_demonstrator_with_the_fault_copies_the_colours_of_the_request() -> None:
    env = ImagePrompt(clusters=2, demo_fault="copied-colours", demo_fault_rate=0.6)
    wrong = 0
    for index in range(200):
        session = await begun(env, index)
        written = env.demonstrate()
        _, reward, *_ = await session.step(written)
        assert (reward == 0.0) is (written != env.gold())
        wrong += reward == 0.0
    assert wrong / 200 == pytest.approx(0.6, abs=0.12)


async def test_with_several_tries_the_policy_is_told_what_it_got() -> None:
    env = ImagePrompt(clusters=1, tries=3)
    session = await begun(env)
    assert env.briefing().max_turns == 3
    first, reward, terminated, truncated, _ = await session.step(
        "a red circle top left, a blue circle"
    )
    assert (reward, terminated, truncated) == (0.0, False, False)
    message = as_messages(first)[-1]
    assert "1 blue circle center, 1 red circle top left" in message.text
    assert len(message.images) == 1
    _, reward, terminated, *_ = await session.step(env.gold())
    assert (reward, terminated) == (1.0, True)


async def test_the_last_try_counts() -> None:
    env = ImagePrompt(clusters=1, max_count=1, tries=2)
    session = await begun(env)
    await session.step("nothing")
    _, reward, terminated, *_ = await session.step(f"{env.gold()}, 1 purple square top left")
    assert (reward, terminated) == (0.5, True)


class Inverted:
    """A generator of one's own: draws, and turns the picture upside down."""

    def generate(self, prompt: str, *, seed: int) -> Pixels:
        return ShapeRenderer().generate(prompt)[::-1].copy()


async def test_another_generator_makes_other_pictures() -> None:
    env = ImagePrompt(clusters=1, generator=Inverted())
    rewards = set[float]()
    for index in range(12):
        session = await begun(env, index)
        _, reward, *_ = await session.step(env.gold())
        rewards.add(float(reward))
    assert rewards == {0.0} or rewards == {0.0, 1.0}  # what is in the middle may stay right


class Brightness:
    """An image scorer of one's own."""

    never_blocks = True
    asked: ClassVar[list[Sample]] = []

    def score(self, sample: Sample) -> Verdict:
        Brightness.asked.append(sample)
        if "fail" in sample.text:
            return Verdict.unavailable("the scorer is down")
        return Verdict.of(len(sample.images[0].data) / 1000)


async def test_a_verifier_of_images_scores_the_picture() -> None:
    register_verifier("test/brightness", Brightness)
    env = ImagePrompt(clusters=1, scorer="test/brightness")
    session = await begun(env)
    _, reward, terminated, *_ = await session.step("red circle")
    assert terminated
    assert 0 < float(reward) < 1
    sample = Brightness.asked[-1]
    assert (sample.prompt, sample.text) == (env.request, "red circle")
    assert sample.images[0].data.startswith(b"\x89PNG")
    session = await begun(env)
    with pytest.raises(RewardUnavailable, match="the scorer is down"):
        await session.step("fail")


def test_settings_that_cannot_be_are_refused() -> None:
    for settings, message in (
        ({"clusters": 6}, "clusters must be from 1 to 5"),
        ({"max_count": 0}, "max_count must be from 1 to 3"),
        ({"tries": 0}, "tries must be from 1 to 16"),
        ({"size": 10_000}, "size must be from 48 to 1024"),
        ({"demo_fault": "laziness"}, "demo_fault must be one of"),
        ({"demo_fault_rate": 1.5}, "demo_fault_rate must be from 0 to 1"),
    ):
        given: dict[str, Any] = settings
        with pytest.raises(ConfigError, match=message):
            ImagePrompt(**given)
    with pytest.raises(UnknownVerifier):
        ImagePrompt(scorer="no-such-scorer")


async def test_the_picture_reaches_the_viewer_and_verifiers_here_and_over_http(
    tmp_path: Path,
) -> None:
    env_id = "ludus/image-prompt-v0"
    policy = ScriptedPolicy(lambda messages: "2 red circle top left")
    local = make_async(env_id, clusters=1)
    episodes = [await play(local, policy, task="test/3", split="test")]
    await local.close()
    with BackgroundServer(HttpServer([EnvService([f"{env_id}?clusters=1"])])) as url:
        server = connect(url)
        remote = server.make_async(env_id)
        episodes.append(await play(remote, policy, task="test/3", split="test"))
        await remote.close()
        await server.aclose()
    pictures: list[ImagePart] = []
    for episode in episodes:
        (trajectory,) = episode.trajectories
        (message,) = trajectory.closing
        pictures += message.images
        assert as_sample(trajectory).images == message.images
        write_episodes(tmp_path / "e.jsonl", [episode])
        page = page_of([RunReader(tmp_path / "e.jsonl", "e", None)], PageHead())
        assert page.count("data:image/png;base64,") == 1
    assert pictures[0].data == pictures[1].data
    assert pictures[0].data == png_of(ShapeRenderer().generate("2 red circle top left"))


def test_a_long_prompt_is_cut_and_costs_little() -> None:
    rng = random.Random(0)
    words = [*COLOURS, *SHAPES, *PLACES, ","]
    prompt = " ".join(rng.choice(words) for _ in range(100_000))
    assert shown(prompt) == shown(prompt[:2000])
