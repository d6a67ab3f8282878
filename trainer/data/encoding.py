"""Conversations as rows of tokens, written as a policy would have read and sampled them.

The assistant's turns are encoded by `ChatFormat.answer` behind the ids before, and what follows is
appended by the template; where a template would rewrite earlier text, a new row begins. Rows of
files therefore have the layout, and the masks, of the rows of rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.agent import ChatFormat, Segment
from ludus.agent.data.conversations import Conversation
from ludus.agent.images import PlacedImage
from ludus.agent.rows import GrowingRows
from ludus.agent.trajectory import Turn
from ludus.errors import LudusError
from ludus.messages import Role

from ..rollout.batch import Batch, as_row

LONGEST_TOKEN = 256
"""Characters that no token of a vocabulary exceeds. Encoding a megabyte takes seconds."""
Ids = np.ndarray[tuple[int], np.dtype[np.int32]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class DataRow:
    """A row of tokens; five bytes a token, since a data set is held whole."""

    ids: Ids
    mask: Mask
    """Whether each token is trained."""
    images: tuple[PlacedImage, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


class Unlearnable(LudusError, ValueError):
    """Data that a model cannot read; the message is a reason that items are counted by."""


def segments_of(
    conversation: Conversation, chat_format: ChatFormat, max_tokens: int
) -> list[Segment]:
    """Return a conversation as segments: one, unless the template rewrites what stands before.

    Raises:
        ConfigError: the template cannot show the conversation.
        Unlearnable: it has far more text than `max_tokens` tokens can hold.
        ImageRefused: an image cannot be shown.
    """
    messages, tools = conversation.messages, conversation.tools
    if any(len(message.text) > LONGEST_TOKEN * max_tokens for message in messages):
        raise Unlearnable(f"longer than {max_tokens} tokens")
    rows = GrowingRows(chat_format, [])
    answered = 0
    """The number of messages that the ids show."""
    for place, message in enumerate(messages):
        if message.role is not Role.ASSISTANT or place < conversation.first:
            continue
        turn = Turn(message=message, trained=conversation.learns(place))
        new, before = messages[answered:place], messages[:place]
        turn.obs_ids, turn.obs_images = rows.append(new, before, tools)
        turn.out_ids = chat_format.answer(message, tools, rows.ids)
        rows.add(turn)
        answered = place + 1
    return rows.segments


def rows_of_segments(segments: Sequence[Segment]) -> tuple[DataRow, ...]:
    """Return the rows of segments that train a token."""
    return tuple(
        DataRow(np.array(row.ids, np.int32), np.array(row.mask, np.bool_), row.images)
        for segment in segments
        if (row := as_row(segment)) is not None
    )


def batch_of(rows: Sequence[DataRow]) -> Batch:
    """Stack rows, padded with id 0 and mask 0."""
    width = max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.float32)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row.ids, row.mask
    tensors: list[Tensor] = [torch.from_numpy(ids), torch.from_numpy(mask)]
    shown: Any = tuple(row.images for row in rows)
    return Batch(
        ids=tensors[0],
        mask=tensors[1],
        sampler_logp=torch.zeros_like(tensors[1]),
        lengths=torch.tensor([len(row) for row in rows]),
        images=shown if any(shown) else (),
    )
