"""`ludus/image-prompt-v0`: write prompts for an image generator.

    user       a pair of crimson discs in the upper west, a lone navy tile halfway along
    assistant  2 red circle top left, 1 blue square center
    user       [image]                                             reward 1

A request is in a person's words, and the generator knows few: what it does not know it ignores. The
reward is how much the *picture* shows of what was asked for, read from its pixels; or what a
verifier of images says of it, such as ImageReward. With several tries the policy sees what it got
and may write another prompt.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ImagePart, Message, TextPart, user
from ludus.rewards import Sample, Verifier, make_verifier
from ludus.verdict import Verdict
from ludus.wire.address import parse_served

from ...problem_files import split_of
from ...protocol import Briefing, TextEnv
from ...tasks import GeneratedTasks, Task, digest_of
from .pictures import ImageGenerator, ShapeRenderer, png_of, seen
from .scenes import (
    PLACES,
    SAID_COUNTS,
    Cluster,
    draw_scene,
    likeness,
    prompt_of,
    request_of,
    said,
    told,
)

CHECK = "check"
MAX_DRAWS = 10_000


class PromptFault(StrEnum):
    """The fault of a biased demonstrator."""

    NONE = "none"
    COPIED_COLOURS = "copied-colours"
    """Colours are written in the request's words, which the generator does not know."""


class ImagePromptTasks(GeneratedTasks):
    """The tasks of a split have a scene for each seed; difficulty is the number of clusters."""

    def __init__(
        self, split: str, max_clusters: int, scene_of: Callable[[Task], tuple[Cluster, ...]]
    ) -> None:
        super().__init__(split)
        self.max_clusters = max_clusters
        self._scene_of = scene_of

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the scene's difficulty and digest."""
        task = super().at(index)
        scene = self._scene_of(task)
        problem = digest_of(prompt_of(sorted(scene, key=lambda cluster: cluster.place)))
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(len(scene)),
            problem=problem,
        )


class ImagePrompt(TextEnv):
    """Write a prompt for an image generator so that the picture shows what a person asked for.

    Args:
        clusters: most groups of equal objects in a request, 1 to 5.
        max_count: most objects of a group, 1 to 3.
        tries: prompts an episode may have. After each but the last the policy is shown the picture
            and, in words, what it shows; a picture that is right ends the episode.
        pictures: whether the policy sees the pictures between tries, beside the words; false suits
            models that read text alone.
        scorer: "check" compares the picture's objects with those asked for (Jaccard's index, so 1
            is exactly right). The name of a verifier, with options as a server takes them, has it
            score the last picture instead: it gets the request as prompt and the picture as image.
        size: the width and height in pixels of the pictures of the built-in renderer.
        generator: what makes the pictures; the built-in renderer of shapes by default. One of your
            own may block; the check only understands plain coloured shapes on white.
        demo_fault: what `demonstrate` does wrong.
        demo_fault_rate: how often it does.

    Raises:
        ConfigError: a setting cannot be.
        UnknownVerifier: `scorer` names none.
    """

    system_prompt = "Write an image prompt."
    answer_format = ""
    max_turns = 1

    def __init__(
        self,
        *,
        clusters: int = 2,
        max_count: int = 3,
        tries: int = 1,
        pictures: bool = True,
        scorer: str = CHECK,
        size: int = 96,
        generator: ImageGenerator | None = None,
        demo_fault: str = PromptFault.NONE,
        demo_fault_rate: float = 0.6,
    ) -> None:
        if not 1 <= clusters <= len(PLACES):
            raise ConfigError(f"clusters must be from 1 to {len(PLACES)}, got {clusters}")
        if not 1 <= max_count <= len(SAID_COUNTS):
            raise ConfigError(f"max_count must be from 1 to {len(SAID_COUNTS)}, got {max_count}")
        if not 1 <= tries <= 16:
            raise ConfigError(f"tries must be from 1 to 16, got {tries}")
        if demo_fault not in list(PromptFault):
            fault_names = ", ".join(PromptFault)
            raise ConfigError(f"demo_fault must be one of {fault_names}, got {demo_fault!r}")
        if not 0 <= demo_fault_rate <= 1:
            raise ConfigError(f"demo_fault_rate must be from 0 to 1, got {demo_fault_rate}")
        self.clusters = clusters
        self.max_count = max_count
        self.tries = tries
        self.pictures = pictures
        self.generator: ImageGenerator = generator or ShapeRenderer(size=size)
        self.verifier: Verifier | None = None
        if scorer != CHECK:
            name, options = parse_served(scorer)
            self.verifier = make_verifier(name, **options)
        self.demo_fault = PromptFault(demo_fault)
        self.demo_fault_rate = demo_fault_rate
        self._begin(Task(id="train/0", split="train", seed=0))

    def briefing(self) -> Briefing:
        """Return the class's briefing with as many turns as tries. The picture of the last try is
        not for the policy, which says nothing after it.
        """
        shows = self.pictures and self.tries > 1
        return msgspec.structs.replace(super().briefing(), max_turns=self.tries, shows_images=shows)

    def tasks(self, split: str) -> ImagePromptTasks:
        """Return the endless tasks of a split; no scene is in two splits."""
        return ImagePromptTasks(split, self.clusters, self._scene_of)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the task and show the request in a person's words."""
        self._begin(self.task)
        slips = self.demo_fault is not PromptFault.NONE and self.rng.random() < self.demo_fault_rate
        self._slips = slips
        return self.request, {"briefing": self.briefing()}

    async def step(
        self, action: str
    ) -> tuple[list[Message], float | Verdict, bool, bool, dict[str, Any]]:
        """Make the picture of a prompt and score the last picture. Any text is a prompt; nonsense
        draws nothing.
        """
        self._tried += 1
        prompt = action if isinstance(action, str) else ""
        pixels = self.generator.generate(prompt, seed=self.task.seed)
        objects_seen = seen(pixels)
        matched = likeness(
            [scene_object for cluster in self.scene for scene_object in cluster.things],
            objects_seen,
        )
        picture = ImagePart(data=png_of(pixels))
        has_ended = self._tried >= self.tries or (self.verifier is None and matched == 1.0)
        text = (
            "" if has_ended else f"The picture shows {told(objects_seen)}. Write a better prompt."
        )
        images = [picture] if has_ended or self.pictures else []
        observation = [user([*([TextPart(text)] if text else []), *images])]
        info = {"shown": told(objects_seen), "matched": matched}
        if not has_ended:
            return observation, 0.0, False, False, info
        if self.verifier is None:
            return observation, matched, True, False, info
        sample = Sample(prompt=self.request, response=prompt, images=[picture])
        scoring = self.verifier.score(sample)
        verdict = await scoring if inspect.isawaitable(scoring) else scoring
        return observation, verdict, True, False, info

    def gold(self) -> str:
        """Return the scene in words that the built-in renderer understands."""
        return prompt_of(self.scene)

    def demonstrate(self) -> str:
        """Return the gold, or a prompt with the fault that `demo_fault` names."""
        if not self._slips:
            return self.gold()
        return prompt_of(
            Cluster(right.count, word.colour, right.shape, right.place)
            for right, word in zip(self.scene, self.words, strict=True)
        )

    async def close(self) -> None:
        """Close the verifier that scores the pictures, if any."""
        close = getattr(self.verifier, "close", None)
        closing = close() if callable(close) else None
        if inspect.isawaitable(closing):
            await closing

    def _begin(self, task: Task) -> None:
        self.scene = self._scene_of(task)
        rng = random.Random(f"request/{task.seed}")
        self.words = [said(rng, cluster) for cluster in self.scene]
        self.request = request_of(rng, self.words)
        self._tried = 0
        self._slips = False

    def _scene_of(self, task: Task) -> tuple[Cluster, ...]:
        """Return the first drawn scene that belongs to the task's split."""
        rng = random.Random(f"scene/{task.seed}")
        clusters = rng.randint(1, self.clusters)
        for _ in range(MAX_DRAWS):
            scene = draw_scene(rng, clusters, self.max_count)
            if split_of(prompt_of(sorted(scene, key=lambda word: word.place))) == task.split:
                return scene
        raise ConfigError(f"no scene of split {task.split!r} was found; raise clusters")
