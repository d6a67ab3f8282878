"""The wiki game environment: from page to page of a fictional encyclopedia.

    user       Get from 'Tisenmar Mills' to 'Runa Larley' in at most 6 clicks. ...
    assistant  click(link="Old Bremford")
    tool       Old Bremford. Old Bremford is a town. ... Links: Dandland; Runa Larley; ...
    assistant  click(link="Runa Larley")
    tool       You are there.                                       reward 1

The pages are about a fictional world, so no model can know the links by heart.
"""

from __future__ import annotations

import random
from collections import deque
from functools import lru_cache
from typing import Any

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant

from ..protocol import Briefing, Info, TextEnv
from ..tasks import SPLITS, GeneratedTasks, TaskSet
from ..tools import ToolResult, tool
from .fiction import Pages, build_world

PROBED = 500
"""The most starts from which a distance is looked for when an environment is made."""


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

    def draw(
        self, rng: random.Random, *, least: int, most: int, tried: int | None = None
    ) -> tuple[str, str, int]:
        """Draw a start, a target, and the clicks between the two, from `least` to `most`.

        The distance is drawn first, so that all distances are equally frequent.

        Args:
            rng: the source of random numbers.
            least: the fewest clicks.
            most: the most clicks.
            tried: how many starts are tried; by default all, each once, so that a distance which
                some two pages have is always found.

        Raises:
            ConfigError: no two pages are so far apart, as far as was tried.
        """
        distance = rng.randint(least, most)
        untried = list(self.names)
        for _ in self.names[:tried]:
            start = untried.pop(rng.randrange(len(untried)))
            away = self.distances(start)
            targets = [name for name in self.names if away.get(name) == distance]
            if targets:
                return start, rng.choice(targets), distance
        raise ConfigError(
            f"no or hardly any pages are {distance} clicks apart in a world of this size; make it "
            "larger (people) or max_distance smaller"
        )


@lru_cache(maxsize=12)
def page_graph(world: int, people: int, split: str) -> PageGraph:
    """Return the graph of a realm, built once per process."""
    world_drawn = build_world(world, people)
    return PageGraph(Pages(world_drawn), [entity.name for entity in world_drawn.realm(split)])


MAX_DISTANCE = 12
MAX_NAME_CHARS = 200
TURNS_A_CLICK = 3
"""How many turns there are for each click, so that a policy that does not click comes to an end."""

Stepped = tuple[str, float, bool, bool, Info]


class WikiGame(TextEnv):
    """An environment in which links lead from a start page to a target page of an encyclopedia.

    Args:
        min_distance: the fewest clicks between start and target.
        max_distance: the most clicks between start and target.
        slack: how many clicks are allowed, as a multiple of the fewest that lead to the target.
        show_target: whether the first observation quotes the page of the target.
        world: the seed of the fictional world.
        people: the number of people in the fictional world.

    Raises:
        ConfigError: a setting is out of range, or no two pages are so far apart.
    """

    system_prompt = (
        "Get from page to page by following links, until you are at the target. Pages name their "
        "relations and some of those who belong to them."
    )
    answer_format = "Follow one link at a time, with click."

    def __init__(
        self,
        *,
        min_distance: int = 2,
        max_distance: int = 4,
        slack: float = 2.0,
        show_target: bool = True,
        world: int = 0,
        people: int = 240,
    ) -> None:
        if not 1 <= min_distance <= max_distance <= MAX_DISTANCE:
            raise ConfigError(
                f"need 1 <= min_distance <= max_distance <= {MAX_DISTANCE}, got {min_distance}, "
                f"{max_distance}"
            )
        if not 1 <= slack <= 100:
            raise ConfigError(f"slack must be from 1 to 100, got {slack:g}")
        build_world(world, people)  # raises for impossible sizes
        self.distance_range = (min_distance, max_distance)
        self.slack = slack
        self.show_target = show_target
        self.world = (world, people)
        # Every split is tried with both ends of the range, so that distances which the world does
        # not have are refused here and not at some reset.
        for split in SPLITS:
            graph = page_graph(*self.world, split)
            for distance in self.distance_range:
                graph.draw(random.Random("probe"), least=distance, most=distance, tried=PROBED)
        self.graph = page_graph(*self.world, "train")
        self.page = self.target = ""
        self.clicks_left = 0

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; each split is played in a separate realm."""
        return GeneratedTasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the start page, the target and the number of clicks."""
        self.graph = page_graph(*self.world, self.task.split)
        min_distance, max_distance = self.distance_range
        rng = random.Random(f"wikigame/{self.task.seed}")
        self.page, self.target, distance = self.graph.draw(
            rng, least=min_distance, most=max_distance
        )
        self.clicks_left = int(self.slack * distance)
        turns = TURNS_A_CLICK * self.clicks_left
        briefing: Briefing = msgspec.structs.replace(self.briefing(), max_turns=turns)
        goal = (
            f"Get from {self.page!r} to {self.target!r} in at most {self.clicks_left} "
            f"{'click' if self.clicks_left == 1 else 'clicks'}."
        )
        target_text = f"The target says: {self.graph.text(self.target)}" if self.show_target else ""
        opening = "\n\n".join(part for part in (goal, target_text, self._page_text()) if part)
        return opening, {"briefing": briefing, "distance": distance}

    @tool
    def click(self, link: str) -> ToolResult:
        """Follow a link of the page you are on.

        Args:
            link: the name of a page it links to
        """
        if len(link) > MAX_NAME_CHARS:
            raise ToolError(f"no page has a name of {len(link)} characters")
        # Case and extra spaces do not matter: a policy writes names from memory.
        wanted = " ".join(link.split()).casefold()
        links = self.graph.links(self.page)
        page = next((name for name in links if name.casefold() == wanted), None)
        if page is None:
            raise ToolError(
                f"{self.page!r} has no link {link.strip()!r}; it links to {'; '.join(links)}"
            )
        self.page = page
        self.clicks_left -= 1
        if self.page == self.target:
            return ToolResult(content="You are there.", reward=1.0, terminated=True)
        if not self.clicks_left:
            status = f"You are at {self.page!r}, and there are no clicks left."
            return ToolResult(content=status, terminated=True)
        return ToolResult(content=f"{self._page_text()}\n\nClicks left: {self.clicks_left}.")

    def step(self, action: str | Message) -> Stepped:
        """Treat a name alone as a click; answer anything else with what to do."""
        text = action if isinstance(action, str) else action.text
        try:
            result = self.click(text)
        except ToolError as error:
            return f"{error}. Follow a link with click.", 0.0, False, False, {}
        return result.content, result.reward, result.terminated, False, {}

    def _page_text(self) -> str:
        links = "; ".join(self.graph.links(self.page))
        return f"You are at {self.page!r}: {self.graph.text(self.page)}\n\nLinks: {links}"

    def demonstrate(self) -> str | Message:
        """Click the next link of a shortest way; where no way is left, the first link."""
        step = self.graph.next_step(self.page, self.target) or self.graph.links(self.page)[0]
        return assistant("", [ToolCall(name="click", arguments={"link": step})])
