"""Images of recorded episodes are files beside the lines, each once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn, read_episodes, write_episodes
from ludus.agent.images import PlacedImage
from ludus.agent.viewer import PageHead, RunReader, page_of
from ludus.errors import ConfigError
from ludus.messages import ImagePart, Message, TextPart, assistant, user
from ludus.verdict import Verdict

RED = ImagePart(data=b"\x89PNG red " + bytes(3000))
BLUE = ImagePart(data=b"\xff\xd8\xff blue " + bytes(3000))
FAR = ImagePart(url="https://example.com/cat.png")


def shown(*images: ImagePart) -> Message:
    return user([TextPart("look"), *images])


def episode(task: str) -> Episode:
    first = Turn(observation=[shown(RED, FAR)], message=assistant("red"), out_ids=[1])
    second = Turn(
        observation=[shown(BLUE), user("text")],
        obs_images=[PlacedImage(BLUE, 2, 4)],
        message=assistant("blue"),
        out_ids=[2],
    )
    segment = Segment(
        prompt_ids=[5, 6, 7],
        prompt_images=[PlacedImage(RED, 1, 2)],
        turns=[first],
        discarded=[second],
    )
    trajectory = Trajectory(
        verdict=Verdict.of(1.0),
        segments=[segment],
        state_images=[PlacedImage(RED, 0, 2)],
        closing=[shown(BLUE)],
    )
    return Episode(task=task, trajectories=[trajectory])


def test_images_are_written_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "episodes" / "step-000001.jsonl"
    path.parent.mkdir()
    made = [episode(f"train/{number}") for number in range(20)]
    write_episodes(path, made)
    files = sorted((path.parent / "images").iterdir())
    assert sorted(file.read_bytes() for file in files) == sorted([RED.data, BLUE.data])
    assert {file.suffix for file in files} == {".png", ".jpg"}
    assert all(len(line) < 2000 for line in path.read_bytes().splitlines())
    back = read_episodes(path)
    assert back == made
    # equal images share their bytes
    first, last = back[0].trajectories[0], back[-1].trajectories[0]
    assert first.segments[0].prompt_images[0].image is last.state_images[0].image


def test_writers_of_the_same_image_at_once_leave_it_whole(tmp_path: Path) -> None:
    image = ImagePart(data=b"BM" + bytes(8 << 20))
    trajectory = Trajectory(verdict=Verdict.of(1.0), closing=[shown(image)])
    written = Episode(task="train/0", trajectories=[trajectory])
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with ThreadPoolExecutor(4) as writers:
            files = [folder / f"{number}.jsonl" for number in range(4)]
            list(writers.map(lambda file: write_episodes(file, [written]), files))
        assert all(read_episodes(file) == [written] for file in files)
        assert len(list((folder / "images").iterdir())) == 1


def test_episodes_without_images_are_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, [Episode(task="train/0")])
    assert json.loads(path.read_bytes())["task"] == "train/0"
    assert list(tmp_path.iterdir()) == [path]


def test_an_image_whose_file_is_gone_stays_a_name(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, [episode("train/0")])
    for file in (tmp_path / "images").iterdir():
        file.unlink()
    (back,) = read_episodes(path)
    image = back.trajectories[0].segments[0].prompt_images[0].image
    assert (image.data, image.url[:6]) == (b"", "image:")
    assert '"named":"image:' in page_of([RunReader(path, "e", None)], PageHead())


def test_an_image_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, [episode("train/0")])
    next((tmp_path / "images").iterdir()).write_bytes(b"other")
    with pytest.raises(ConfigError, match="its digest has changed"):
        read_episodes(path)


def test_a_name_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    path = tmp_path / "episodes.jsonl"
    made = episode("train/0")
    made.trajectories[0].closing = [shown(ImagePart(url="image:../secret.png"))]
    write_episodes(path, [made])
    (back,) = read_episodes(path)
    assert back.trajectories[0].closing[0].images == [ImagePart(url="image:../secret.png")]


def test_the_page_shows_the_images_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, [episode("train/0")])
    page = page_of([RunReader(path, "e", None)], PageHead())
    assert page.count("data:image/png;base64,") == 1  # once where the policy saw the image
    assert page.count("data:image/jpeg;base64,") >= 1


def test_positions_of_images_follow_the_turns() -> None:
    turns = [
        Turn(out_ids=[1, 2]),
        Turn(obs_ids=[3, 4, 5], obs_images=[PlacedImage(BLUE, 1, 2)], out_ids=[6]),
        Turn(obs_ids=[7, 8], obs_images=[PlacedImage(RED, 0, 2)], out_ids=[9]),
    ]
    row = Segment(prompt_ids=[0, 0], prompt_images=[PlacedImage(RED, 0, 1)], turns=turns)
    assert [(one.start, one.end) for one in row.images()] == [(0, 1), (5, 7), (8, 10)]
