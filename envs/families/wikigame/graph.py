"""The pages of a fictional world as a graph: a page links to the pages of everything mentioned."""

from __future__ import annotations

import random
from collections import deque
from functools import lru_cache

from ludus.errors import ConfigError

from ..fiction import Pages, build_world

MAX_DRAWS = 500


class PageGraph:
    """The pages of a realm, and the links from page to page."""

    def __init__(self, pages: Pages, names: list[str]) -> None:
        self._pages = pages
        self.names = names
        self._links = {name: pages.mentioned(name) for name in names}

    def text(self, name: str) -> str:
        """Return the text of a page."""
        return self._pages.text(name)

    def links(self, name: str) -> list[str]:
        """Return the pages that a page links to, in the order of mention."""
        return self._links[name]

    def distances(self, start: str) -> dict[str, int]:
        """Return the number of clicks from `start` to each reachable page, by breadth-first
        search.
        """
        distance_of = {start: 0}
        waiting = deque([start])
        while waiting:
            page = waiting.popleft()
            for target in self._links[page]:
                if target not in distance_of:
                    distance_of[target] = distance_of[page] + 1
                    waiting.append(target)
        return distance_of

    def next_step(self, start: str, target: str) -> str | None:
        """Return the first link of a shortest way from `start` to `target`; None without a way."""
        came_from = {start: start}
        waiting = deque([start])
        while waiting and target not in came_from:
            page = waiting.popleft()
            for link in self._links[page]:
                if link not in came_from:
                    came_from[link] = page
                    waiting.append(link)
        if target not in came_from or target == start:
            return None
        step = target
        while came_from[step] != start:
            step = came_from[step]
        return step

    def draw(self, rng: random.Random, *, least: int, most: int) -> tuple[str, str, int]:
        """Draw a start, a target, and the clicks between the two, from `least` to `most`.

        The distance is drawn first, so that all distances are equally frequent.

        Raises:
            ConfigError: no two pages are so far apart.
        """
        distance = rng.randint(least, most)
        for _ in range(MAX_DRAWS):
            start = rng.choice(self.names)
            away = self.distances(start)
            targets = [name for name in self.names if away.get(name) == distance]
            if targets:
                return start, rng.choice(targets), distance
        raise ConfigError(
            f"no two pages are {distance} clicks apart in a world of this size; make it larger "
            "(people) or max_distance smaller"
        )


@lru_cache(maxsize=12)
def page_graph(world: int, people: int, split: str) -> PageGraph:
    """Return the graph of a realm, built once per process."""
    world_drawn = build_world(world, people)
    return PageGraph(Pages(world_drawn), [entity.name for entity in world_drawn.realm(split)])
