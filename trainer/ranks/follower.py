"""The loop of every rank but the first: do what rank 0 orders, until the run is over."""

from __future__ import annotations

import logging
from pathlib import Path

from ludus.errors import LudusError

from ..learning.update import Updater
from .control import Follower, Order
from .group import Ranks
from .learner import ShardedLearner, ShardWriter
from .source import ShardedWeights
from .updater import follow_step

logger = logging.getLogger(__name__)


def follow(ranks: Ranks, updater: Updater) -> None:
    """Take part in every order of rank 0; returns at the end of the run.

    Args:
        ranks: the connected group.
        updater: the same as on rank 0, with this rank's learner.

    Raises:
        RankLost: a rank died or failed.
    """
    control = ranks.control
    assert isinstance(control, Follower), "rank 0 leads, and groups are connected first"
    while (order := control.receive()) is not None:
        payload = ranks.broadcast(None)
        try:
            _obey(order, payload, updater)
        except LudusError as error:
            # rank 0 came to the same end, tells it, and decides whether the run goes on
            logger.debug("%s: %s: %s", ranks.me, order.name, error)


def _obey(order: Order, payload: bytes, updater: Updater) -> None:
    learner = updater.learner
    assert isinstance(learner, ShardedLearner), "ranks hold shards"
    given = order.arguments
    match order.name:
        case "step":
            follow_step(updater, payload)
        case "piece":
            source = ShardedWeights(learner.model, learner.ranks, adapter=given["adapter"])
            source.gather(given["first"], given["last"])
        case "broken":
            ShardWriter(learner).broken()
        case "score":
            learner.score_ids(given["ids"], given["temperature"])
        case "average":
            learner.exchange_average(put_in=given["put_in"])
        case "shards":
            ShardWriter(learner).write_shards(Path(given["folder"]))
        case _:
            raise ValueError(f"no order named {order.name!r}")
