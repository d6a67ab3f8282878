"""The trained rows of `context.py` on functions and search: a world, its size and its tokens.

Each world has a window that holds no whole episode. One set of weights is taught by the expert in
the windows of `summarize`; every arm is then shown its own windows and trained by `supo`.
A run whose result is in the folder is not made again.

    python benchmarks/context_games.py functions --folder FOLDER
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_training import TRAINED, Arm
from supo_runs import longest_row, one_thread
from supo_setting import CONTINUATION, INSTRUCTION

from ludus.agent.context import ContextSettings, ReSum, register_context
from ludus.envs.families.functions.functions_env import NO_CALL
from ludus.envs.families.functions.moves import Sort, sorting_notes
from ludus.messages import ToolCall

HEAD = '<tool_call>\n{"name": "'
TURNS = (
    "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n",
    INSTRUCTION, f"\n\n{INSTRUCTION}", "\n\nSummary: ", "\n\nMemory:\n",
)  # fmt: skip
"""What every episode repeats, one token each."""
SORTED = (
    "\n<|im_start|>user\n<tool_response>\n",
    "\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    HEAD + 'compare", "arguments": {"first": ', HEAD + 'swap", "arguments": {"first": ',
    ', "second": ', "}}\n</tool_call>",
    HEAD + 'length", "arguments": {}}\n</tool_call>',
    HEAD + 'done", "arguments": {}}\n</tool_call>',
    "length() compare(first, second) swap(first, second) done() ",
    "the one at ", " is ", "smaller", "larger", "swapped", "the same", "there is no position ",
    "; they are numbered from 0 to ",
    "length ", "; placing ", "; next ", "compare ", "swap ", "done", "length", "unknown",
)  # fmt: skip


@dataclass(frozen=True)
class Game:
    """The sizes of a world's runs."""

    env: str
    window: int
    action_tokens: int
    summary_tokens: int
    phrases: tuple[str, ...] = ()
    taught: int = 800
    """Updates of the clean start, at most; the loss at which it ends is `taught_loss`."""
    taught_loss: float = 0.015
    taught_lr: float = 3e-3
    shown: int = 15
    """Updates in the arm's own windows."""
    steps: int = 40
    tasks: int = 10
    group: int = 8
    eval_tasks: int = 48
    lr: float = 5e-4
    shape: dict[str, int] = field(default_factory=lambda: {"hidden": 64, "layers": 2, "heads": 4})

    @property
    def full_at(self) -> float:
        """L as a share of W: what is left after it holds a turn, the question and the summary."""
        room = 2 * self.action_tokens + self.summary_tokens
        return (self.window - room + 0.5) / self.window


class SortClerk:
    """The separate summariser of `resum` on sort: a program that reads without error."""

    async def write(self, messages, max_tokens: int) -> str:
        """The summary that the environment's expert writes."""
        # the newest exchange is carried into the next window, and is read in that one
        text = messages[-1].text.rpartition("[assistant] ")[0]
        before = re.search(r"length (\w+); placing (\d+); next ([a-z]+[ \d]*)", text)
        exchanges = re.findall(
            r"\[assistant\] (length|compare|swap)\((.*)\)\n\n"
            r"\[tool\] (\d+|the one at \d+ is \w+|swapped)$",
            text[before.end() :] if before else text,
            re.MULTILINE,
        )
        calls = [
            (ToolCall(name=name, arguments=json.loads(given), id=""), said)
            for name, given, said in exchanges
        ]
        if not before:
            return sorting_notes(calls)
        return sorting_notes(calls, before[1], int(before[2]), before[3].strip())

    async def close(self) -> None:
        """Nothing to close."""


@register_context("benchmark/clerk")
def clerk(where: str, threshold: float, max_summaries: int, summary_tokens: int) -> ReSum:
    """ReSum with the program of a world in place of a server."""
    return ReSum(
        CLERKS[where](), threshold=threshold, max_summaries=max_summaries,
        summary_tokens=summary_tokens, carry=True, continuation=CONTINUATION,
    )  # fmt: skip


def functions() -> Game:
    """Insertion sort of four to six hidden numbers, by comparing and swapping."""
    return Game(
        env='ludus/functions-v0?games=["sort"]&min_calls=10&max_calls=20',
        window=80, action_tokens=6, summary_tokens=12,
        phrases=(*TURNS, *SORTED, Sort.question, NO_CALL),
        taught_loss=0.08, steps=30,
    )  # fmt: skip


def write_search_files(folder: Path, seed: int = 0) -> tuple[Path, Path, list[str]]:
    """Write a corpus whose pages lead to one another, and questions about where a page ends.

    A question that is held out asks for a page that no question has asked for, so that a policy has
    to copy names and not to remember them: there are 1,500, of two tokens each, from 60 tokens.

    Returns:
        The files of the pages and of the questions, and the names of the pages.
    """
    rng = random.Random(seed)
    halves = [f"{letter}{digit}" for letter in "bdfghjkmpqtvwxz" for digit in "2468"]
    names = [first + last for first in halves for last in halves if first != last]
    rng.shuffle(names)
    levels = [[names.pop() for _ in range(size)] for size in (60, 120, 180, 240, 400, 500)]
    leads_to = {
        name: rng.choice(levels[number - 1]) if number else ""
        for number, level in enumerate(levels)
        for name in level
    }
    pages, questions = [], []
    for name, target in leads_to.items():
        near = ", ".join(rng.sample(list(leads_to), 3))
        end = f"leads to {target}" if target else "is the end"
        pages.append({"title": name, "text": f"{name} is near {near}. {name} {end}."})
    for name in (*levels[4], *levels[5]):
        way = [name]
        while leads_to[way[-1]]:
            way.append(leads_to[way[-1]])
        questions.append(
            {"question": f"Where does {name} end?", "answer": way[-1], "searches": way}
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "pages.jsonl", folder / "questions.jsonl"
    for file, rows in zip(files, (pages, questions), strict=True):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return *files, list(leads_to)


FOUND = (
    HEAD + 'search", "arguments": {"query": "', '"}}\n</tool_call>',
    "\n<|im_start|>user\n<tool_response>\n",
    "\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    'Doc 1(Title: "', '") ', " is near ", " leads to ", " is the end.", ", ", ". ",
    "Where does ", " end?", "Found ", ": ", "; ", ". Next: ", ". Answer: ", "nothing",
    "<answer>", "</answer>",
)  # fmt: skip


def search() -> Game:
    """Pages that lead to one another, five or six searches to the end, and the end's name."""
    pages, questions, names = write_search_files(Path(tempfile.gettempdir()) / "ludus-search-game")
    halves = dict.fromkeys(half for name in names for half in (name[:2], name[2:]))
    return Game(
        env=(
            f"ludus/search-v0?corpus={pages}&questions={questions}&topk=1&max_turns=16"
            "&validation=0.05&test=0.25"
        ),
        window=152, action_tokens=8, summary_tokens=42,
        phrases=(*TURNS, *FOUND, *halves),
        taught=700, steps=20,
    )  # fmt: skip


class PageClerk:
    """The separate summariser of `resum` on search: a program that reads without error."""

    async def write(self, messages, max_tokens: int) -> str:
        """The summary that the environment's expert writes."""
        # the newest exchange is carried into the next window, and is read in that one
        text = messages[-1].text.rpartition("[assistant] ")[0]
        noted = re.search(r"Found (.*)\. (?:Next|Answer): ", text)
        way = dict(step.split(": ") for step in noted[1].split("; ")) if noted else {}
        way |= dict(re.findall(r"(\w+) leads to (\w+)\.", text))
        way |= dict.fromkeys(re.findall(r"(\w+) is the end\.", text), "nothing")
        if not way:
            name = re.search(r"Where does (\w+) end", text)
            return f"Next: {name[1]}." if name else ""
        last, target = list(way.items())[-1]
        steps = "; ".join(f"{place}: {leads_to}" for place, leads_to in way.items())
        return f"Found {steps}. " + (
            f"Answer: {last}." if target == "nothing" else f"Next: {target}."
        )

    async def close(self) -> None:
        """Nothing to close."""


GAMES = {"functions": functions, "search": search}
CLERKS = {"functions": SortClerk, "search": PageClerk}


def arm_of(where: str, name: str, game: Game) -> Arm:
    """The settings of a trained manager."""
    if name == "none":
        return Arm({}, game.action_tokens)
    shared: dict[str, object] = {"manager": name, "max_summaries": 32}
    shared |= {"threshold": game.full_at, "summary_tokens": game.summary_tokens}
    if name == "resum":
        return Arm(shared | {"manager": f"benchmark/clerk?where={where}"}, game.action_tokens)
    if name == "summarize":
        shared |= {"last_pair": "carry", "continuation": CONTINUATION}
    return Arm(shared | {"instruction": INSTRUCTION}, game.action_tokens)


def show(game: Game, folder: Path, start: Path, arm: Arm, seed: int, steps: int, lr: float) -> Path:
    """Warm weights up on the expert in an arm's windows."""
    from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
    from ludus.trainer.sft import run_sft

    config = SFTConfig(
        env=game.env, steps=steps, batch_size=16, seed=seed, window=game.window,
        stop_loss=game.taught_loss if lr == game.taught_lr else 0.0,
        context=ContextSettings(**arm.context),
        model=ModelConfig(path=str(start), device="cpu"),
        trainer=TrainerConfig(lr=lr, warmup_steps=20, lr_decay="linear"),
        run=RunConfig(folder=str(folder), tensorboard=False, episodes_every=0),
    )  # fmt: skip
    return asyncio.run(run_sft(config))


def taught(where: str, game: Game, folder: Path) -> Path:
    """Weights that the expert has taught in the windows of `summarize`."""
    from ludus.envs import make_async
    from ludus.trainer.models.checkpoint_folders import newest_checkpoint
    from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
    from ludus.wire.address import parse_served

    if (folder / "taught.done").exists():
        return newest_checkpoint(folder / "taught" / "checkpoints")
    name, arguments = parse_served(game.env)
    phrases = [*briefing_phrases(make_async(name, **arguments).env.briefing()), *game.phrases]
    model = write_tiny_policy(
        folder / "model", phrases=list(dict.fromkeys(phrases)), seed=0, max_length=4096,
        **game.shape,
    )  # fmt: skip
    arm = arm_of(where, "summarize", game)
    weights = show(game, folder / "taught", model, arm, 0, game.taught, game.taught_lr)
    (folder / "taught.done").touch()
    return weights


def train(where: str, game: Game, folder: Path, clean: Path, name: str, seed: int) -> dict:
    """Show an arm its own windows, train it and test it; a finished run is read."""
    from ludus.metrics import read_metrics
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.train import run_training

    finished = folder / f"{name}-{seed}.json"
    if finished.exists():
        return json.loads(finished.read_text())
    started, arm, run = time.process_time(), arm_of(where, name, game), folder / f"{name}-{seed}"
    warm = clean
    if name != "none" and game.shown:  # whose expert would run out of its window
        warm = show(game, run / "demo", clean, arm, seed + 1, game.shown, 1e-3)
    config = TrainConfig(
        env=game.env,
        recipe="supo",
        steps=game.steps,
        seed=seed,
        model=ModelConfig(path=str(warm), device="cpu"),
        rollout=RolloutConfig(
            tasks_per_step=game.tasks,
            group_size=game.group,
            max_tokens=arm.max_tokens,
            window=game.window,
            concurrency=game.tasks * game.group,
        ),
        context=ContextSettings(**arm.context),
        trainer=TrainerConfig(lr=game.lr, warmup_steps=2, lr_decay="linear", updates_per_step=1),
        eval=EvalConfig(tasks=game.eval_tasks),
        run=RunConfig(folder=str(run / "rl"), tensorboard=False, save_every=0, episodes_every=0),
    )
    asyncio.run(run_training(config))
    rows = read_metrics(run / "rl" / "metrics.jsonl")
    evals = [row["eval/mean"] for row in rows if "eval/mean" in row]
    sampled = [row["reward/mean"] for row in rows if "reward/mean" in row]
    summary = {
        "env": where, "manager": name, "seed": seed, "before": evals[0], "after": evals[-1],
        "sampled_before": sampled[0], "sampled": statistics.fmean(sampled[-3:]),
        "row_tokens": longest_row(run / "rl"), "cpu_s": time.process_time() - started,
    }  # fmt: skip
    finished.write_text(json.dumps(summary))
    return summary


def trained(where: str, folder: Path, seeds: Sequence[int], arms=TRAINED):
    """Yield a row for each arm and seed of a world, as soon as it is there."""
    one_thread()
    game = GAMES[where]()
    folder.mkdir(parents=True, exist_ok=True)
    clean = taught(where, game, folder)
    for seed in seeds:
        for name in arms:
            yield train(where, game, folder, clean, name, seed)


def main() -> int:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", choices=list(GAMES))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, help="this one alone; -1 teaches the first weights")
    parser.add_argument("--arms", default=",".join(TRAINED))
    options = parser.parse_args()
    arms = options.arms.split(",")
    seeds = range(options.seeds) if options.seed is None else range(options.seed, options.seed + 1)
    for row in trained(options.where, options.folder, seeds, arms if seeds[0] >= 0 else ()):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
