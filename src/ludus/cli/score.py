"""`ludus score`: the verdict of a verifier on an answer, on images, or on a file of answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from ludus.background import run_on_loop
from ludus.envs.serving.connect import connect
from ludus.errors import ConfigError
from ludus.rewards import Sample, Verdict, Verifier, make_verifier
from ludus.rewards.maths import check_golds, examples, explain, render
from ludus.rewards.maths.explain import escaped, shortened
from ludus.rewards.rows import image_at
from ludus.rewards.score import awaited_verdict, close_verifier
from ludus.wire.address import parse_served, read_value

from .arguments import Flag, VerbHelp, parse
from .names import NameKind, from_file, kind_of, take_options, with_options
from .score_file import score_answers, show_report

TIMEOUT_S = 600.0


@dataclass(frozen=True)
class ScoreOptions:
    """The options of `ludus score`: the answers, and the verifier to score with."""

    verifier: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="VERIFIER|FILE")]
    """The verifier's name, as ludus list shows it; or a file whose rows each name their own."""

    gold: str | None = None
    """The reference answer; a verifier that compares with none needs --answer alone."""

    answer: str | None = None
    """What the policy wrote."""

    image: tuple[Path, ...] = ()
    """Images to score, with a verifier of images; several are ranked, 1 for the best."""

    prompt: str = ""
    """What the policy was asked, or what an image should show."""

    file: Path | None = None
    """JSON Lines with gold, response (or prediction), and optionally prompt, info, images,
    verifier, label and category.
    """

    out: str = ""
    """With a file of answers, a file for the verdicts, a line for each row. A file that is there
    is gone on with: only what has no verdict yet is scored.
    """

    url: Annotated[str, tyro.conf.arg(metavar="URL")] = ""
    """The server that scores; by default the verifier runs in this process."""

    check_golds: Path | None = None
    """List the golds of this file that cannot be read, have several boxes, are approximate,
    ambiguous or have to be evaluated, with what to do (maths).
    """

    explain: Flag = False
    """Print the decision step by step (maths)."""

    set: tuple[str, ...] = ()
    """Options of the verifier, as NAME=JSON: --set preset='"strict"' timeout_s=1. They may also be
    flags of their own: --preset strict.
    """

    options: Path | None = None
    """A TOML file with options of the verifier."""

    wrong: int = 0
    """With --file, show this many answers whose verdict differs from the label."""

    json: Flag = False
    """Print the result as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Score, print the verdicts, and return 1 where the answer or an image has no reward, else
    0.
    """
    options = parse(
        ScoreOptions,
        take_options(arguments, ScoreOptions),
        VerbHelp(
            verb="score",
            about="Score an answer, or a file of answers, with a verifier.",
            example=r"ludus score maths --gold '1/2' --answer '\boxed{\frac{2}{4}}' --explain"
            "\n  ludus score answers.jsonl --out verdicts.jsonl",
        ),
    )
    bare = options.verifier.partition("?")[0]  # an option may be a file of JSON, too
    if options.file is None and bare.endswith((".jsonl", ".json")):
        options = replace(options, verifier="", file=Path(options.verifier))
    (verifier_options,) = from_file([options.verifier], options.options)
    name, settings = parse_served(with_options(verifier_options, _settings(options.set)))
    if name and not options.url and kind_of(name) is NameKind.ENVIRONMENT:
        raise ConfigError(
            f"{name!r} is an environment, which ludus eval plays; name a verifier (ludus list)"
        )
    options = replace(options, verifier=name)
    if options.check_golds is not None:
        return _check_golds(options)
    if options.file is not None:
        return _score_file(options, settings)
    if options.out:
        raise ConfigError(f"--out {options.out}: is for a file of answers; name one with --file")
    if options.image:
        return score_images(options, settings)
    if options.answer is None:
        raise ConfigError("score needs --gold and --answer, or --image, --file or --check-golds")
    if options.explain:
        if options.verifier != "maths":
            raise ConfigError(f"--explain is for the verifier 'maths', not {options.verifier!r}")
        if options.gold is None:
            raise ConfigError("--explain needs --gold and --answer")
        steps = explain(options.gold, options.answer, prompt=options.prompt, **settings)
        Console().print(render(steps), soft_wrap=True)
        return 0
    sample = Sample(response=options.answer, gold=options.gold, prompt=options.prompt)
    (verdict,) = _verdicts(options, [sample], settings)
    return _show_verdict(verdict, as_json=options.json)


def _score_file(options: ScoreOptions, settings: dict[str, Any]) -> int:
    assert options.file is not None
    if options.url and settings:
        raise ConfigError(
            "--set and --options: a server fixes the options of its verifiers; give them to ludus "
            "serve, and leave them out here"
        )
    try:
        report = score_answers(
            options.file, options.verifier, settings, out=options.out, url=options.url
        )
    except KeyboardInterrupt:
        if not options.out:
            raise
        print(f"interrupted; the same command goes on with {options.out}", file=sys.stderr)
        return 130
    show_report(report, out=options.out, wrong=options.wrong, as_json=options.json)
    return 0


def _settings(items: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=JSON, got {item!r}")
        if name in settings:
            raise ConfigError(f"--set gives {name!r} twice; give it once")
        settings[name] = read_value(value)
    return settings


def _show_verdict(verdict: Verdict, *, as_json: bool) -> int:
    """Print a verdict; returns 1 where the answer has no reward, else 0."""
    if as_json:
        fields = {"status": verdict.status, "reward": verdict.reward, "detail": verdict.detail}
        print(json.dumps({**fields, "metrics": verdict.metrics, "parts": verdict.parts}))
    else:
        worth = f"reward {verdict.reward:g}" if verdict.reward is not None else str(verdict.status)
        print(": ".join(filter(None, [worth, escaped(verdict.detail)])))
        for name, (value, weight) in verdict.parts.items():
            print(f"  {escaped(name)} {value:g}, weight {weight:g}")
    return 0 if verdict.ok else 1


def score_images(options: ScoreOptions, settings: dict[str, Any]) -> int:
    """Score image files, print rewards and ranks, and return 1 if any image has no reward, else
    0.
    """
    paths = options.image
    images = [image_at(path) for path in paths]
    samples = [Sample(response="", prompt=options.prompt, images=[image]) for image in images]
    verdicts = _verdicts(options, samples, settings)
    # Rank the images, 1 for the highest reward; None for an image without a reward.
    rewards = [verdict.reward for verdict in verdicts]
    known_rewards = sorted((reward for reward in rewards if reward is not None), reverse=True)
    ranks = [None if reward is None else known_rewards.index(reward) + 1 for reward in rewards]
    rows = list(zip(paths, verdicts, ranks, strict=True))
    if options.json:
        for path, verdict, rank in rows:
            fields = {"image": str(path), "status": verdict.status, "reward": verdict.reward}
            print(json.dumps({**fields, "rank": rank, "detail": verdict.detail}))
    else:
        table = Table("image", "reward", "rank")
        for path, verdict, rank in rows:
            worth = f"{verdict.reward:.4f}" if verdict.reward is not None else str(verdict.status)
            table.add_row(str(path), worth, str(rank or verdict.detail))
        Console().print(table)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _verdicts(
    options: ScoreOptions, samples: Sequence[Sample], settings: dict[str, Any]
) -> list[Verdict]:
    """Score a few samples here, or on the server that is named."""
    if options.url:
        if settings:
            raise ConfigError(
                f"{options.verifier!r}: a server fixes the options of its verifiers; give them to "
                "ludus serve, and leave them out here"
            )
        with connect(options.url) as server:
            return server.score_batch(options.verifier, samples)
    verifier = make_verifier(options.verifier, **settings)
    try:
        return run_on_loop(_score_all(options.verifier, verifier, samples))
    finally:
        close_verifier(verifier)


async def _score_all(name: str, verifier: Verifier, samples: Sequence[Sample]) -> list[Verdict]:
    """Score all samples concurrently, so that a verifier that batches sees the whole set."""

    async def score(sample: Sample) -> Verdict:
        scoring = verifier.score(sample.heard_by(verifier))
        return await awaited_verdict(scoring, name=name, timeout_s=TIMEOUT_S)

    return await asyncio.gather(*map(score, samples))


def _check_golds(options: ScoreOptions) -> int:
    if options.verifier != "maths":
        raise ConfigError(f"--check-golds is for the verifier 'maths', not {options.verifier!r}")
    path = options.check_golds
    assert path is not None
    counts: Counter[str] = Counter()
    golds, shown = 0, set[str]()
    for line, given_gold in _golds(path):
        golds += 1
        for problem in check_golds([given_gold]):
            counts[problem.kind] += 1
            gold = escaped(shortened(problem.gold))
            print(f"{path}:{line}: {problem.kind}: '{gold}' {escaped(problem.reason)}")
        for gold in given_gold if isinstance(given_gold, list) else [given_gold]:
            pays, refuses = examples(gold) if gold not in shown else ([], [])
            shown.add(gold)
            if refuses:
                paid = escaped("; ".join(pays or ["what equals its value"]))
                print(f"    pays {paid}, does not pay {escaped('; '.join(refuses))}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{golds} golds checked: {kinds or 'nothing to mend'}")
    return 1 if counts["invalid"] else 0


def _golds(path: Path) -> Iterator[tuple[int, str | list[str]]]:
    """Yield the line number and the gold of each line of JSON Lines or plain text.

    The gold of a JSON object is its `gold`, else `answer`, else `final_answer`; a list holds golds
    that all count.

    Raises:
        ConfigError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}:{number}: not UTF-8 ({error.reason})") from error
        if not line.strip():
            continue
        try:
            row = json.loads(line) if line.lstrip().startswith(("{", '"')) else line
        except json.JSONDecodeError:
            row = line
        if isinstance(row, dict):
            names = [name for name in ("gold", "answer", "final_answer") if name in row]
            row = row[names[0]] if names else ""
        yield number, [str(gold) for gold in row] if isinstance(row, list) else str(row)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
