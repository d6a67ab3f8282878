"""`ludus tasks`: task sets from questions with answers, from a corpus, and from designs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tyro

from ludus.envs.curation import (
    CandidateTasks,
    MeasureSettings,
    ServerModel,
    TaskAuthor,
    TaskCollection,
    TaskModel,
    WriteSettings,
    measure_tasks,
    read_candidates,
    round_trip,
    write_collection,
    write_questions,
    write_rubrics,
)
from ludus.envs.problem_files import check_shares
from ludus.errors import ConfigError, MissingExtra

from .arguments import Flag, VerbHelp, parse


@dataclass(frozen=True, kw_only=True)
class TasksOptions:
    """The options of `ludus tasks`."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE|HUB")]
    """Questions with answers: .jsonl, .json or .parquet files, or owner/name of a hub. The layouts
    of GSM8K, MATH, AIME and others are recognised. With --write search a corpus, with --write
    verilog designs.
    """
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = "tasks"
    """The folder to write, which must be new or empty."""
    question: str = ""
    """The field with the question."""
    answer: str = ""
    """The field with the answer."""
    verifier: str = "maths"
    """What scores answers; of maths a gold must be readable, others take any gold."""
    validation: float = 0.05
    """The share of tasks for validation."""
    test: float = 0.1
    """The share of tasks for test."""
    seed: int = 0
    """Decides which questions go to which split, and seeds what a model writes."""
    model: str = ""
    """The model that tasks are measured with, or written by: its name on a server; without
    --base-url a folder, a run, a released model or tiny, in this process. Empty asks no model.
    """
    base_url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The address of the model's server, up to and with /v1; its key is read from LUDUS_API_KEY."""
    cache: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """A folder for the server's answers, so that a command that was cut goes on."""
    device: str = "auto"
    """The device of a model in this process."""
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    """How tasks are measured with the model, and which are left out."""
    write: Literal["", "search", "verilog", "rubrics"] = ""
    """Have the model write tasks: questions over a corpus, descriptions of designs, or rubrics for
    questions from what a search in --corpus finds.
    """
    corpus: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """With --write rubrics: the documents that are searched."""
    writing: WriteSettings = field(default_factory=WriteSettings)
    """How the model writes tasks, and which are kept."""
    json: Flag = False
    """Print the card as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Write the task set and print the card; returns 0."""
    options = parse(
        TasksOptions,
        arguments,
        VerbHelp(
            verb="tasks",
            about="Make a task set without repetitions or unreadable golds, in disjoint splits.",
            example="ludus tasks problems.jsonl --out tasks",
        ),
    )
    check_options(options)
    folder = Path(options.out)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{str(folder)!r} is not empty; name another folder with --out")
    collection = asyncio.run(collected(options))
    card = write_collection(collection, folder)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(card)).decode())
        return 0
    counts = ", ".join(f"{count} {split}" for split, count in card["tasks"].items())
    print(f"{folder}: {counts}, of {card['rows']} rows in {card['clusters']} clusters")
    for split, share in (("validation", options.validation), ("test", options.test)):
        wanted, held = round(share * sum(card["tasks"].values())), card["tasks"][split]
        if held < wanted / 2:
            print(
                f"{split} has {held} of {wanted} tasks: most questions are alike but for numbers, "
                "and stay in train; add other questions, or name a file of its own"
            )
    for reason, count in card["left_out"].items():
        print(f"left out {count}: {reason}")
    for name, value in collection.measured.items():
        print(f"{name}: {value}")
    return 0


def check_options(options: TasksOptions) -> None:
    """Refuse options that would change nothing, before a model is loaded.

    Raises:
        ConfigError: what is wrong, and what to do.
    """
    check_shares(options.validation, options.test)
    if not options.sources:
        raise ConfigError("no source named; give a file or a hub's owner/name")
    if not options.model:
        wanted = [name for name in ("write", "base_url", "cache") if getattr(options, name)] + (
            ["measure"] if options.measure != MeasureSettings() else []
        )
        if wanted:
            raise ConfigError(f"--{wanted[0].replace('_', '-')} needs --model, which is asked")
    if options.cache and not options.base_url:
        raise ConfigError("--cache keeps the answers of a server: set --base-url")
    if options.write == "search" and len(options.sources) != 1:
        raise ConfigError(f"--write search takes one corpus, got {len(options.sources)}")
    if options.write in ("search", "verilog") and (options.question or options.answer):
        raise ConfigError("--question and --answer name fields of questions, which --write writes")
    if bool(options.corpus) != (options.write == "rubrics"):
        raise ConfigError("--write rubrics and --corpus FILE, which is searched, belong together")


async def collected(options: TasksOptions) -> TaskCollection:
    """Read or write tasks, measure each where a model is named, and divide all into splits."""
    shares: dict[str, Any] = {
        "validation": options.validation, "test": options.test, "seed": options.seed
    }  # fmt: skip
    fields = {"question": options.question, "answer": options.answer}
    if options.write:
        async with open_model(options) as model:
            author = TaskAuthor(model, options.writing, options.seed)
            candidates, usage = await written(options, author, fields)
        return replace(candidates.divided(**shares), usage=usage)
    candidates = read_candidates(options.sources, **fields, verifier=options.verifier)
    if options.model:
        async with open_model(options) as model:
            candidates = await measure_tasks(
                candidates, model, options.measure, verifier=options.verifier
            )
    return candidates.divided(**shares, verifier=options.verifier)


async def written(
    options: TasksOptions, author: TaskAuthor, fields: dict[str, str]
) -> tuple[CandidateTasks, str]:
    """Return the tasks that a model writes, and a command that uses them."""
    env = "ludus train grpo --env 'ludus/{}'"
    if options.write == "verilog":
        source = "verilog-v0?source=train.jsonl&test_source=test.jsonl"
        return await round_trip(options.sources, author), env.format(source)
    if options.write == "rubrics":
        rows = Path(options.out) / "train.jsonl"
        usage = f"ludus serve 'evolving-rubric?rubric={rows}&base_url=URL&model=NAME'"
        return await write_rubrics(options.sources, options.corpus, author, **fields), usage
    (corpus,) = options.sources
    source = f"search-v0?corpus={corpus}&questions=train.jsonl&validation=0&test=0"
    return await write_questions(corpus, author), env.format(source)


@asynccontextmanager
async def open_model(options: TasksOptions) -> AsyncGenerator[TaskModel]:
    """Yield the model, once the server has answered or the folder is loaded."""
    if options.base_url:
        server = ServerModel(
            options.base_url,
            options.model,
            cache=options.cache,
            concurrency=max(options.measure.concurrency, options.writing.concurrency),
        )
        try:
            await server.client.ensure_served()
            yield TaskModel(options.model, server)
        finally:
            await server.close()
        return
    try:
        from ludus.agent import Sampling
        from ludus.trainer.engines.local_policy import local_policy
        from ludus.trainer.engines.policy_text import EngineText
        from ludus.trainer.settings.learner import ModelConfig
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="--model without --base-url") from error
    settings = ModelConfig(path=options.model, device=options.device)
    async with local_policy(settings, Sampling(max_tokens=1)) as policy:
        yield TaskModel(options.model, EngineText(policy.engine, policy.chat_format))
