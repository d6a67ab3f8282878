"""Models small enough to be made for a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # what the recording script imports too

from seeded_image_reward import TINY, Sizes, seeded_checkpoint, write_vocabulary


def write_checkpoint(folder: Path, sizes: Sizes) -> Path:
    """Write `ImageReward.pt` and `vocab.txt` with seeded weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder / "vocab.txt")
    tensors = {name: torch.from_numpy(array) for name, array in seeded_checkpoint(sizes).items()}
    torch.save(tensors, folder / "ImageReward.pt")
    return folder


@pytest.fixture(autouse=True)
def threads_are_as_before() -> Iterator[None]:
    """A scorer that is started in this process sets the threads of torch, for later tests too."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_image_reward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with a tiny ImageReward."""
    models = tmp_path_factory.mktemp("models")
    write_checkpoint(models / "image-reward", TINY)
    return models
