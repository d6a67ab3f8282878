"""Context managers at equal working context, on ledger, search and functions.

    python benchmarks/context.py                           # every manager, scripted
    python benchmarks/context.py --train 3 --folder FOLDER # four of them trained, on three seeds

The scripted policy sees its window alone, reads without error and writes down what it reads where
a manager lets it write (`context_worlds.py`): the table shows what each manager can keep in W
tokens, not what a model learns. What a tiny model learns is in the trained rows; those that the
folder has are read from it.
"""

import argparse
import asyncio
import json
import math
import statistics
import tempfile
from pathlib import Path

from context_script import ASK, FOLD, STATE, Scribe, ScriptedEngine
from context_worlds import WORLDS, World

MANAGERS = (
    "none",
    "keep_last_k",
    "discard",
    "clear",
    "summarize",
    "fold",
    "memory",
    "records",
    "mem1",
    "agent_fold",
    "memagent",
    "resum",
    "clear+memory+summarize",
)
SUMMARY_TOKENS = 700
EVERYTHING = 60_000
"""A window that holds every episode: the upper line."""


def manager_of(name: str, world: World, session):
    """The manager with short texts, at equal terms: what is carried over is the same everywhere."""
    from ludus.agent.context import Composed, find_context

    settings = {
        "keep_last_k": {"keep": 2, "threshold": 0.8},
        "discard": {"threshold": 0.8},
        "clear": {"keep": 2, "threshold": 0.8, "exclude_tools": ("memory",)},
        "summarize": {
            "instruction": ASK, "last_pair": "carry", "threshold": 0.7, "max_summaries": 500,
            "summary_tokens": SUMMARY_TOKENS,
        },
        "memory": {"threshold": 0.8},
        "fold": {"max_summaries": 500},
        "records": {"keep": 1, "threshold": 0.8, "record_chars": 32, "max_records": 24},
        "mem1": {"instruction": STATE},
        "agent_fold": {"instruction": FOLD},
        "memagent": {
            "instruction": ASK, "threshold": 0.7, "summary_tokens": SUMMARY_TOKENS,
            "chunk_tokens": world.window,
        },
        "resum": {
            "summariser": Scribe(world, session), "carry": True, "threshold": 0.8,
            "max_summaries": 500, "summary_tokens": SUMMARY_TOKENS,
        },
    }  # fmt: skip
    managers = [find_context(part)(**settings.get(part, {})) for part in name.split("+")]
    return managers[0] if len(managers) == 1 else Composed(managers)


async def scripted_row(where: str, name: str, tasks: int, window: int) -> dict:
    """Play held-out tasks under a manager."""
    from ludus.agent import ChatFormat, EpisodeLimits, Sampling, TokenPolicy, play
    from ludus.agent.parsing import HermesFormat
    from ludus.envs import make_async
    from ludus.trainer.models.tiny import build_tokenizer

    world = WORLDS[where]
    chat = ChatFormat(build_tokenizer(), HermesFormat())
    session = make_async(world.env, **world.arguments)
    context = manager_of(name, world, session)
    rewards, segments, tokens, longest = [], [], [], 0
    row = window + context.overrun()
    for seed in range(tasks):
        engine = ScriptedEngine(chat, world, name, session, row)
        sampling = Sampling(max_tokens=800)
        policy = TokenPolicy(engine, chat, sampling, window=window, context=context)
        episode = await play(
            session, policy, split="test", seed=seed, limits=EpisodeLimits(max_turns=300)
        )
        trajectory = episode.trajectories[0]
        assert trajectory.verdict.ok, trajectory.verdict.detail
        rewards.append(trajectory.verdict.unwrap())
        segments.append(len(trajectory.segments))
        tokens.append(trajectory.sampled_tokens)
        longest = max(longest, engine.longest)
    await session.close()
    return {
        "env": where,
        "manager": name,
        "window": window,
        "success": statistics.fmean(rewards),
        "tasks": tasks,
        "segments": statistics.fmean(segments),
        "sampled": statistics.fmean(tokens),
        "longest": longest,
    }


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% interval of a share of `count`.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return centre - half, centre + half


def scripted_table(rows: list[dict]) -> str:
    """A line for each manager: success with its interval, segments and sampled tokens."""
    lines = [f"{'manager':<24}" + "".join(f"{where:>36}" for where in WORLDS)]
    for name in dict.fromkeys(row["manager"] for row in rows):
        cells = []
        for where in WORLDS:
            matching = [row for row in rows if (row["env"], row["manager"]) == (where, name)]
            if not matching:
                cells.append(f"{'-':>36}")
                continue
            row = matching[0]
            low, high = wilson(row["success"], row["tasks"])
            said = f"{row['success']:.2f} [{low:.2f}, {high:.2f}]"
            cells.append(f"{said} {row['segments']:5.1f} seg {row['sampled']:6.0f} tok".rjust(36))
        lines.append(f"{name:<24}" + "".join(cells))
    return "\n".join(lines)


def trained_table(rows: list[dict]) -> str:
    """A line for each trained manager: means over seeds with 95% intervals by Student's t."""
    from supo_rows import interval

    columns = ("sampled_before", "sampled", "before", "after")
    heads = ("sampled, first", "last three", "greedy, before", "after")
    lines = [f"{'':<10} {'manager':<10} {'seeds':>5}" + "".join(f"{head:>17}" for head in heads)]
    for where, name in dict.fromkeys((row["env"], row["manager"]) for row in rows):
        mine = [row for row in rows if (row["env"], row["manager"]) == (where, name)]
        said = [interval([row[column] for row in mine]) for column in columns]
        lines.append(
            f"{where:<10} {name:<10} {len(mine):>5}" + "".join(f"{cell:>17}" for cell in said)
        )
    return "\n".join(lines)


def trained(
    wheres: list[str], folder: Path, seeds: range, arms: list[str], *, own_starts: bool
) -> list[dict]:
    """Train the arms on each environment; a row whose result is in the folder is read."""
    import context_games
    import context_training

    rows = []
    for where in wheres:
        if where == "ledger":
            results = context_training.trained(folder / where, seeds, arms, own_starts=own_starts)
        else:
            results = context_games.trained(where, folder / where, seeds, arms)
        for row in results:
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


async def scripted(tasks: int, names: list[str]) -> list[dict]:
    """All scripted rows, and the upper line."""
    rows = []
    for where, world in WORLDS.items():
        rows.append(await scripted_row(where, "none", tasks, EVERYTHING) | {"manager": "(all)"})
        for name in names:
            rows.append(await scripted_row(where, name, tasks, world.window))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=64, help="held-out tasks of a scripted row")
    parser.add_argument("--managers", default=",".join(MANAGERS), help="scripted; may be empty")
    parser.add_argument("--train", type=int, default=0, help="seeds of the trained rows")
    parser.add_argument("--where", default="ledger,search,functions", help="of the trained rows")
    parser.add_argument("--arms", default="none,summarize,memagent,resum", help="mem1 on ledger")
    parser.add_argument("--own-starts", action="store_true", help="weights for each seed of ledger")
    parser.add_argument("--folder", type=Path, help="keeps trained rows; a scratch one by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scripted_rows, trained_rows = [], []
    if names := [name for name in options.managers.split(",") if name]:
        scripted_rows = asyncio.run(scripted(options.tasks, names))
        print(scripted_table(scripted_rows))
    if options.train:
        with tempfile.TemporaryDirectory(prefix="ludus-context-") as scratch:
            trained_rows = trained(
                options.where.split(","), options.folder or Path(scratch), range(options.train),
                options.arms.split(","), own_starts=options.own_starts,
            )  # fmt: skip
        print(trained_table(trained_rows))
    if options.json:
        options.json.write_text(
            json.dumps({"scripted": scripted_rows, "trained": trained_rows}, indent=1)
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
