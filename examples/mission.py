"""An environment with tools and four verifiers, served for the run of mission.toml.

    python examples/mission.py --image-reward FOLDER        # docs/images.md has the weights
    ludus train examples/mission.toml                       # in another terminal

A customer wants a sign. The policy asks for the price, paints a picture, and answers with a program
for the price, the price of this sign, and a sentence. Four verifiers score one answer, each on the
server: the price (maths), the program (code, in a sandbox), the sentence (a rubric that a language
model reads), and the picture (ImageReward). Without `--judge` the judge is `ludus mock-judge`.
"""

from __future__ import annotations

import argparse
import inspect
import random
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import msgspec

import ludus
from ludus import Message, Sample, Verdict
from ludus.envs.families.image_prompt import ShapeRenderer
from ludus.envs.families.image_prompt.pictures import png_of
from ludus.envs.tools import tool
from ludus.errors import ToolError
from ludus.messages import ImagePart, ToolCall, assistant, user
from ludus.rewards import make_verifier

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("circle", "square", "triangle")
PLACES = ("top left", "top right", "center", "bottom left", "bottom right")
GOODS = ("enamel", "copper", "oak", "slate")
RUBRIC = {
    "items": [
        {"text": "The response tells the customer in a sentence what the sign costs."},
        {"text": "The response is rude.", "weight": -1.0},
    ]
}


@ludus.register("mission/sign-v0")
class Sign(ludus.TextEnv):
    """Make a sign: ask for a price, paint, and answer with program, price and sentence."""

    system_prompt = "Make the sign."
    answer_format = "End with a Python block, the price in \\boxed{}, and a sentence."
    max_turns = 8
    never_blocks = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw an order; the price of a letter is only told by the tool."""
        draw = random.Random(f"sign/{self.task.seed}")
        self.scene = f"1 {draw.choice(COLOURS)} {draw.choice(SHAPES)} {draw.choice(PLACES)}"
        self.goods, self.price = draw.choice(GOODS), draw.randint(3, 19)
        self.letters, self.fee = draw.randint(3, 12), draw.randint(2, 9)
        self.asked, self.picture = False, b""
        return (
            f"A sign of {self.goods}: {self.scene}, {self.letters} letters. Write total(n) for n "
            f"letters with a fee of {self.fee} a sign.",
            {},
        )

    @tool
    def price_of(self, goods: str) -> str:
        """Say what a letter costs.

        Args:
            goods: what the sign is made of
        """
        if goods != self.goods:
            raise ToolError(f"there is no {goods!r} in this order; it is of {self.goods}")
        self.asked = True
        return str(self.price)

    @tool
    def paint(self, prompt: str) -> str:
        """Paint the picture of the sign.

        Args:
            prompt: what it shows, such as 1 red circle top left
        """
        pixels = ShapeRenderer(size=64).generate(prompt, seed=self.task.seed)
        self.picture = png_of(pixels)
        return "painted"

    def step(self, action: str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """End the episode; the verifiers are shown the picture."""
        shown = [user([ImagePart(data=self.picture)])] if self.picture else []
        return shown, 0.0, True, False, {}

    def gold(self) -> dict[str, Any]:
        """Return what each verifier compares with."""
        cases = {n: n * self.price + self.fee for n in (1, 2, 7)}
        tests = [f"assert total({n}) == {worth}" for n, worth in cases.items()]
        return {
            "price": str(self.letters * self.price + self.fee),
            "program": {"tests": tests, "entry_point": "total"},
            "scene": self.scene,
        }

    def demonstrate(self) -> str | Message:
        """Ask, paint, answer."""
        if not self.asked:
            return assistant("", [ToolCall(name="price_of", arguments={"goods": self.goods})])
        if not self.picture:
            return assistant("", [ToolCall(name="paint", arguments={"prompt": self.scene})])
        cost = self.letters * self.price + self.fee
        program = f"def total(n):\n    return n * {self.price} + {self.fee}"
        said = f"Dear customer, your sign costs {cost}."
        return f"```python\n{program}\n```\n\\boxed{{{cost}}}\n{said}"


class Part(ABC):
    """A shipped verifier on the part of the answer that is its own.

    Args:
        name: the shipped verifier.
        options: its options.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.inner = make_verifier(name, **options)

    @abstractmethod
    def own(self, sample: Sample) -> Sample | Verdict:
        """Return what the shipped verifier is given, or a verdict at once."""

    async def score(self, sample: Sample) -> Verdict:
        """Score the part; an episode that the policy did not bring to its end earns nothing."""
        if sample.gold is None:
            return Verdict.of(0.0, detail="the episode was cut before its answer")
        own = self.own(sample)
        if isinstance(own, Verdict):
            return own
        scoring = self.inner.score(own)
        return scoring if isinstance(scoring, Verdict) else await scoring

    async def close(self) -> None:
        """Close the shipped verifier."""
        closing = getattr(self.inner, "close", lambda: None)()
        if inspect.isawaitable(closing):
            await closing


@ludus.verifier("mission/maths")
class Price(Part):
    """Whether the price is right."""

    def __init__(self) -> None:
        super().__init__("maths")

    def own(self, sample: Sample) -> Sample:
        """Compare with the price alone."""
        return msgspec.structs.replace(sample, gold=sample.gold["price"], prompt="")


@ludus.verifier("mission/code")
class Program(Part):
    """The share of hidden tests that the program passes."""

    def __init__(self) -> None:
        super().__init__("coding", partial=True)

    def own(self, sample: Sample) -> Sample:
        """Run the program against its tests."""
        return msgspec.structs.replace(sample, gold=sample.gold["program"])


@ludus.verifier("mission/judge")
class Sentence(Part):
    """What a language model says of the sentence, by a rubric."""

    def __init__(self, *, base_url: str, model: str = "mock") -> None:
        super().__init__("judge", base_url=base_url, model=model)

    def own(self, sample: Sample) -> Sample:
        """Show the judge the answer and the rubric, and no gold."""
        return msgspec.structs.replace(sample, gold=None, info={"rubric": RUBRIC})


@ludus.verifier("mission/picture")
class Picture(Part):
    """ImageReward of the picture for what the customer wanted, brought into [0, 1]."""

    def __init__(self, *, folder: str, any_size: bool = False) -> None:
        place = Path(folder)
        files = {"checkpoint": place / "ImageReward.pt", "vocab": place / "vocab.txt"}
        paths = {name: str(path) for name, path in files.items()}
        super().__init__("image-reward", device="cpu", any_size=any_size, **paths)

    def own(self, sample: Sample) -> Sample | Verdict:
        """Show the model the last picture; an answer without one is worth nothing."""
        if not sample.images:
            return Verdict.of(0.0, "nothing was painted")
        images = sample.images[-1:]
        return Sample(response="", prompt=sample.gold["scene"], images=images)

    async def score(self, sample: Sample) -> Verdict:
        """Score the picture, and bring about -2 to 2 into [0, 1]."""
        verdict = await super().score(sample)
        if not sample.images or verdict.reward is None:
            return verdict
        return Verdict.of(min(1.0, max(0.0, (verdict.reward + 2.0) / 4.0)), verdict.detail)


def main() -> int:
    """Serve everything until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image-reward", required=True, metavar="FOLDER")
    parser.add_argument("--any-size", action="store_true", help="take a small model, for tests")
    parser.add_argument("--judge", default="", metavar="URL")
    parser.add_argument("--judge-model", default="mock")
    parser.add_argument("--port", default="8765")
    options = parser.parse_args()
    ludus_words = [sys.executable, "-m", "ludus"]
    started: list[subprocess.Popen[str]] = []
    if not options.judge:
        mock = [*ludus_words, "mock-judge", "--port", "0"]
        started.append(subprocess.Popen(mock, stdout=subprocess.PIPE, text=True))
        assert started[0].stdout is not None
        options.judge = started[0].stdout.readline().split(" at ")[1].split()[0]
    size = "&any_size=true" if options.any_size else ""
    folder = Path(options.image_reward).resolve()
    served = [
        "mission/sign-v0", "mission/maths", "mission/code",
        f"mission/judge?base_url={options.judge}&model={options.judge_model}",
        f"mission/picture?folder={folder}{size}",
    ]  # fmt: skip
    words = [*ludus_words, "--import", __file__, "serve", *served, "--port", options.port]
    started.append(subprocess.Popen(words, text=True))
    signal.signal(signal.SIGTERM, lambda *_: started[-1].terminate())
    try:
        return started[-1].wait()
    finally:
        for process in started:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
