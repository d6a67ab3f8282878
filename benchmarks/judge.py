"""The load that judging bears: judgements a second, a hit of the cache, a replay.

    python benchmarks/judge.py                 1,000 concurrent judgements against the mock
    python benchmarks/judge.py --rounds 5

The mock runs in a process of its own. Every judgement is one question about one response, with its
prompt, digest, request, answer and reading. A hit is the same judgement again, prompt and digest
included. The replay scores a group by an earlier version of an evolved rubric, without a server.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COUNT = 1_000
RUBRIC = [{"text": 'The response names "Paris".', "id": "paris"}]


async def rate(url: str, folder: Path, number: int) -> tuple[float, float]:
    """(judgements a second, seconds of one hit) of 1,000 that are asked for at once."""
    from ludus.rewards.judge import RubricJudge
    from ludus.rewards.protocol import Sample

    cache = str(folder / f"judgements-{number}.sqlite")
    judge = RubricJudge(base_url=url, model="mock", cache=cache, concurrency=256)
    samples = [
        Sample(prompt="Capital?", response=f"It is Paris {n}.", info={"rubric": RUBRIC})
        for n in range(COUNT)
    ]
    started = time.perf_counter()
    verdicts = await asyncio.gather(*(judge.score(sample) for sample in samples))
    took_s = time.perf_counter() - started
    assert all(verdict.reward == 1.0 for verdict in verdicts), verdicts[0]
    hits: list[float] = []
    for sample in samples:
        begun = time.perf_counter()
        verdict = await judge.score(sample)
        hits.append(time.perf_counter() - begun)
        assert verdict.metrics["judge/cached"] == 1.0
    await judge.close()
    return COUNT / took_s, statistics.median(hits)


async def evolve(url: str, folder: Path) -> tuple[list[bytes], list[int]]:
    """The verdicts of a group by an evolving rubric, as bytes, and the versions they rest on."""
    judge = evolving(url, folder)
    verdicts = await judge.score_group(group())
    await judge.close()
    return encoded(verdicts), [int(verdict.metrics["rubric/version"]) for verdict in verdicts]


async def replay(folder: Path, version: int) -> list[bytes]:
    """The same verdicts, from the files alone: nobody listens at that address."""
    judge = evolving("http://127.0.0.1:9/v1", folder)
    verdicts = await judge.replay(group(), version)
    await judge.close()
    return encoded(verdicts)


def evolving(url: str, folder: Path):
    """A judge whose judgements and rubrics are kept in `folder`."""
    from ludus.rewards.judge.evolving import EvolvingJudge

    files = {"cache": str(folder / "j.sqlite"), "rubrics": str(folder / "r.sqlite")}
    return EvolvingJudge(base_url=url, model="mock", **files)


def group():
    """Four answers that differ in what they state."""
    from ludus.rewards.protocol import Sample

    answers = (
        "The town lies in Merow and was founded in 1850.", "The town lies in Merow.",
        "The town was founded in 1850 by Runa.", "Nothing is known of the town in Larley.",
    )  # fmt: skip
    return [Sample(prompt="What is known of the town?", response=text) for text in answers]


def encoded(verdicts) -> list[bytes]:
    """Verdicts as bytes."""
    import msgspec

    return [msgspec.json.encode(verdict) for verdict in verdicts]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "ludus", "mock-judge", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as mock,
    ):
        try:
            assert mock.stdout is not None
            url = next(w for w in mock.stdout.readline().split() if w.startswith("http"))
            rounds = [asyncio.run(rate(url, Path(name), n)) for n in range(options.rounds)]
            first, versions = asyncio.run(evolve(url, Path(name)))
        finally:
            mock.terminate()
        again = asyncio.run(replay(Path(name), versions[0]))
    for a_second, hit_s in rounds:
        print(f"{a_second:.0f} judgements/s, a hit of the cache {hit_s * 1e3:.3f} ms (median)")
    best = max(a_second for a_second, _ in rounds)
    print(f"best of {options.rounds}: {best:.0f} judgements/s ({COUNT} at once)")
    print(f"replay of version {versions[0]} without a server: byte-equal {first == again}")


if __name__ == "__main__":
    main()
