"""Shards of ranks that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.trainer.models.model_paths import SHARDS_FOLDER
from ludus.trainer.ranks.whole import ShardFiles


@pytest.mark.parametrize(
    "metadata",
    [
        None,  # no file
        b"",
        b"not a pickle",
        b"\x80\x04\x95\xff\xff",  # the beginning of a pickle
        b"cludus\nno_such_class\n.",  # of another version
        b"(lp0\nI1\na.",  # a list
    ],
)
def test_shards_without_readable_metadata_are_refused(
    tmp_path: Path, metadata: bytes | None
) -> None:
    (tmp_path / SHARDS_FOLDER).mkdir()
    if metadata is not None:
        (tmp_path / SHARDS_FOLDER / ".metadata").write_bytes(metadata)
    with pytest.raises(ConfigError, match="holds no readable shards"):
        ShardFiles(tmp_path)
