"""Draws the pictures of docs/architecture.md and of the README.

    python docs/pictures/architecture.py

A path is drawn as a sequence diagram: one column for each part, time from top to bottom, one arrow
for each message. The whole is drawn as boxes. A test compares the files with what this draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, SOFT, FILL, EDGE = "#1b1f24", "#57606a", "#f6f8fa", "#8c959f"
LINE = f"fill='none' stroke='{SOFT}' stroke-width='1.4' marker-end='url(#head)'"


class Part(NamedTuple):
    """A column of a sequence diagram; parts with one `where` share a process."""

    name: str
    where: str


class Message(NamedTuple):
    """An arrow from column `start` to column `end`; equal numbers draw a note beside the column."""

    start: int
    end: int
    text: str


ACTION = (
    [
        Part("agent loop\nagent/loop.py", "your process"),
        Part("remote session\nenvs/serving/client.py", "your process"),
        Part("session table\nenvs/serving/sessions.py", "ludus serve"),
        Part("session\nenvs/session.py", "ludus serve, or a worker process"),
        Part("environment\na TextEnv", "ludus serve, or a worker process"),
    ],
    [
        Message(0, 1, "step(action)"),
        Message(1, 2, "Step, with its sequence number"),
        Message(2, 2, "a repeated number returns the kept reply"),
        Message(2, 3, "step(action)"),
        Message(3, 3, "checks order, types and turn limits; calls the tool"),
        Message(3, 4, "step(action)"),
        Message(4, 3, "observation, reward, terminated, truncated, info"),
        Message(3, 2, "the reply, checked"),
        Message(2, 1, "the reply, encoded once and kept"),
        Message(1, 0, "observation and reward"),
    ],
)
SCORE = (
    [
        Part("caller\na trainer, a script", "your process"),
        Part("remote verifier\nrewards/serving/client.py", "your process"),
        Part("score service\nrewards/serving/server.py", "ludus serve"),
        Part("worker process\nrewards/serving/worker.py", "killable worker"),
        Part("verifier\n@ludus.verifier", "killable worker"),
    ],
    [
        Message(0, 1, "score(sample)"),
        Message(1, 2, "Score(verifier, sample)"),
        Message(2, 2, "refuses unknown fields; waits in line or answers 429"),
        Message(2, 3, "to any free worker, with a deadline"),
        Message(3, 4, "score(sample)"),
        Message(4, 3, "a number or a Verdict"),
        Message(3, 2, "a Verdict"),
        Message(2, 2, "a killed or late worker: a Verdict without a reward"),
        Message(2, 1, "Verdict(status, reward, reason, parts)"),
        Message(1, 0, "a Verdict; only ok carries a reward"),
    ],
)
GRADIENT = (
    [
        Part("train\ntrainer/train.py", "ludus train"),
        Part("collector\ntrainer/rollout/", "ludus train"),
        Part("engine\ntrainer/engines/", "in process, or vLLM"),
        Part("updater\ntrainer/learning/update.py", "ludus train"),
        Part("credit\ntrainer/learning/credit.py", "ludus train"),
        Part("learner\ntrainer/learning/learner.py", "ludus train"),
    ],
    [
        Message(0, 1, "tasks of this step"),
        Message(1, 2, "token ids of the context"),
        Message(2, 1, "sampled ids, log-probabilities, weight versions"),
        Message(1, 1, "plays environments, asks verifiers, summarizes"),
        Message(1, 0, "groups of episodes with verdicts"),
        Message(0, 3, "gather: experience, rows of tokens with masks and rewards"),
        Message(3, 5, "ask_models: log-probabilities, values, entropies"),
        Message(3, 4, "credit: shapes rewards, filters, corrects"),
        Message(4, 3, "advantages, weights and masks, made once"),
        Message(3, 5, "passes of rows, each with its loss"),
        Message(5, 5, "sum of losses / sum of weights, then one optimizer step"),
        Message(5, 2, "new weights, with a version"),
        Message(3, 0, "metrics; findings where nothing can be learned"),
    ],
)


def text(x: float, y: float, words: str, size: int = 13, color: str = INK, more: str = "") -> str:
    """One line of text, centred at `x` unless `more` sets another anchor."""
    anchor = "" if "text-anchor" in more else "text-anchor='middle'"
    return (
        f"<text x='{x:g}' y='{y:g}' {FONT} font-size='{size}' fill='{color}' {anchor} {more} "
        "paint-order='stroke' stroke='white' stroke-width='4' stroke-linejoin='round'>"
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, lines: Sequence[str]) -> Iterator[str]:
    """A rounded box; its first line is the name, the others are small."""
    yield (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='6' fill='{FILL}' "
        f"stroke='{EDGE}'/>"
    )
    top = y + height / 2 - (len(lines) - 1) * 8 + 5
    for number, line in enumerate(lines):
        weight = "font-weight='600'" if not number else ""
        yield text(
            x + width / 2, top + number * 16, line, 11 if number else 13, SOFT if number else INK,
            weight,
        )  # fmt: skip


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line that ends in an arrow head."""
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{SOFT}' "
        "stroke-width='1.4' marker-end='url(#head)'/>"
    )


def page(width: float, height: float, body: Iterator[str], title: str) -> str:
    """A whole SVG file on a white ground, so that dark themes show it too."""
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' "
            f"width='{width:g}' height='{height:g}' role='img' aria-label='{escape(title)}'>",
            "<defs><marker id='head' markerWidth='9' markerHeight='7' refX='8' refY='3.5' "
            f"orient='auto'><path d='M0,0 L9,3.5 L0,7 z' fill='{SOFT}'/></marker></defs>",
            f"<rect width='{width:g}' height='{height:g}' fill='white'/>",
            *body,
            "</svg>\n",
        ]
    )


def sequence(parts: Sequence[Part], messages: Sequence[Message], title: str) -> str:
    """A sequence diagram."""
    gap, left, top, step = 210, 110, 86, 34
    width, height = left * 2 + gap * (len(parts) - 1), top + 30 + step * len(messages)

    def body() -> Iterator[str]:
        for number, part in enumerate(parts):
            x = left + gap * number
            yield (
                f"<line x1='{x}' y1='{top - 14}' x2='{x}' y2='{height - 12}' stroke='{EDGE}' "
                "stroke-dasharray='3 4'/>"
            )
            yield text(x, 18, part.where, 11, SOFT, "font-style='italic'")
            yield from box(x - 98, 28, 196, 44, part.name.split("\n"))
        for number, message in enumerate(messages):
            y = top + 24 + step * number
            x1, x2 = left + gap * message.start, left + gap * message.end
            if message.start == message.end:
                yield f"<circle cx='{x1}' cy='{y}' r='3.5' fill='{SOFT}'/>"
                last = message.start == len(parts) - 1
                side = "text-anchor='end'" if last else "text-anchor='start'"
                yield text(x1 - 10 if last else x1 + 10, y + 4, message.text, 12, SOFT, side)
            else:
                yield arrow(x1, y, x2, y)
                yield text((x1 + x2) / 2, y - 6, message.text, 12)

    return page(width, height, body(), title)


def whole() -> str:
    """The parts of ludus and what travels between them."""

    def body() -> Iterator[str]:
        yield text(150, 24, "a machine with a GPU, or not", 12, SOFT, "font-style='italic'")
        yield text(
            640, 24, "reward and environment services, over HTTP", 12, SOFT, "font-style='italic'"
        )
        yield from box(30, 40, 240, 64, ["trainer", "recipes, learner, checkpoints", "ludus train"])
        yield from box(30, 160, 240, 64, ["engine", "samples tokens: in process, or vLLM"])
        yield from box(
            30,
            280,
            240,
            64,
            ["agent", "plays episodes, parses calls,", "summarizes contexts (SUPO)"],
        )
        yield from box(
            520,
            160,
            240,
            64,
            ["environments", "sessions that survive retries", "ludus serve ludus/maths-v0"],
        )
        yield from box(
            520,
            280,
            240,
            64,
            ["verifiers", "maths, code, rubric judges, images", "ludus serve maths"],
        )
        yield from box(520, 400, 240, 56, ["sandboxes", "where untrusted code runs"])
        yield from box(520, 40, 240, 64, ["other trainers", "any client that speaks HTTP"])
        yield arrow(120, 104, 120, 158)
        yield text(112, 136, "weights", 12, INK, "text-anchor='end'")
        yield arrow(180, 280, 180, 226)
        yield text(188, 256, "context", 12, INK, "text-anchor='start'")
        yield arrow(120, 224, 120, 278)
        yield text(112, 256, "tokens", 12, INK, "text-anchor='end'")
        yield f"<path d='M30,312 H12 V72 H28' {LINE}/>"
        yield text(
            20, 372, "episodes with verdicts, to the trainer", 12, INK, "text-anchor='start'"
        )
        yield arrow(270, 300, 518, 200)
        yield text(372, 240, "actions", 12)
        yield arrow(518, 214, 270, 316)
        yield text(444, 276, "observations", 12)
        yield arrow(270, 330, 518, 324)
        yield text(400, 346, "samples in, verdicts out", 12)
        yield arrow(640, 104, 640, 158)
        yield arrow(640, 344, 640, 398)
        yield f"<path d='M760,192 H784 V428 H762' {LINE}/>"

    return page(800, 476, body(), "The parts of ludus")


PICTURES = {
    "architecture-whole.svg": whole,
    "architecture-action.svg": lambda: sequence(*ACTION, "The path of an action"),
    "architecture-score.svg": lambda: sequence(*SCORE, "The path of a score"),
    "architecture-gradient.svg": lambda: sequence(*GRADIENT, "The path of a gradient"),
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), encoding="utf-8")
