"""Seeds, curves and gains: against a peer's decisions, planted curves and counted examples."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.agent.viewer import RunReader
from ludus.agent.viewer.curves import Sigmoid, _f_quantile, fit, fit_with_interval
from ludus.agent.viewer.gains import experience, gains, revisions
from ludus.agent.viewer.seeds import SeedPlan, decide, more_seeds
from ludus.cli.main import main
from ludus.messages import assistant
from ludus.trainer.models.changed import changed_weights
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.verdict import Verdict

PEER = {
    # adastop 0.1.3, n = 4, K = 2, every permutation, level 0.05 on one side: the scores of a are
    # numpy's default_rng(seed).normal(shift, 1, 8), those of b the next 8 without a shift
    (0, 0): "larger", (1, 0): "equal", (2, 3): "larger", (3, 3): "larger", (4, -3): "smaller",
    (5, 1): "equal", (6, 2): "larger", (7, -2): "smaller", (8, 1): "equal", (9, -1): "smaller",
}  # fmt: skip


def drawn(seed: int, shift: float) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    return {"a": list(generator.normal(shift, 1, 8)), "b": list(generator.normal(0, 1, 8))}


@pytest.mark.parametrize(("seed", "shift"), list(PEER))
def test_decisions_are_those_of_adastop(seed: int, shift: float) -> None:
    plan = SeedPlan(group=4, most=2, alpha=0.1)
    assert decide(drawn(seed, shift), plan) == {("a", "b"): PEER[seed, shift]}


def test_equal_recipes_are_called_different_at_most_as_often_as_promised() -> None:
    generator = np.random.default_rng(3)
    wrong = 0
    for trial in range(120):
        scores = {name: list(generator.normal(size=10)) for name in "abc"}
        decided = decide(scores, SeedPlan(group=5, most=2, alpha=0.1, draws=500), seed=trial)
        wrong += any(one in ("larger", "smaller") for one in decided.values())
    assert wrong <= 22  # 12 expected; beyond 22 with a chance of 0.2 %


def test_a_pair_is_decided_as_if_the_names_were_swapped() -> None:
    other = {"larger": "smaller", "smaller": "larger", "equal": "equal", "open": "open"}
    for seed, shift in itertools.product(range(4), (0.0, 2.0)):
        scores = drawn(seed, shift)
        swapped = {"a": scores["b"], "b": scores["a"]}
        plan = SeedPlan(group=4, most=3)
        (one,), (two,) = decide(scores, plan).values(), decide(swapped, plan).values()
        assert one == other[two]


def test_no_decision_hangs_on_the_rounding_of_sums() -> None:
    """The second most extreme deal of ten scores ties with the bound of the first group."""
    drawing = random.Random(3)
    for _ in range(40):
        pool = sorted(drawing.sample(range(100), 10))
        low, high = [*pool[:4], pool[5]], [pool[4], *pool[6:]]
        drawing.shuffle(low)
        whole = decide({"a": high, "b": low}, SeedPlan())
        scaled = {name: [0.1 + x / 10 for x in part] for name, part in (("a", high), ("b", low))}
        assert decide(scaled, SeedPlan()) == whole == {("a", "b"): "open"}


def test_a_score_that_is_no_number_decides_nothing() -> None:
    with pytest.raises(ValueError, match="'a' are not all finite"):
        decide({"a": [float("nan"), 1, 1, 1, 1], "b": [1, 1, 1, 1, 1]}, SeedPlan())
    assert decide({}, SeedPlan()) == {}


def test_more_seeds_are_asked_for_where_they_would_tell() -> None:
    apart = {"a": [1.0, 1.1, 0.9], "b": [0.5, 0.6, 0.4]}  # 3 of 3 above: 1 in 10 by chance
    (told,) = more_seeds(apart, SeedPlan(group=3, most=5, draws=1000)).values()
    assert told == {"decision": "open", "more": 3}
    same = {"a": [1.0, 0.0, 0.5], "b": [0.5, 1.0, 0.0]}
    (told,) = more_seeds(same, SeedPlan(group=3, most=3, draws=1000)).values()
    assert told == {"decision": "open", "more": None}
    assert decide({"a": [1.0], "b": [0.0]}, SeedPlan(group=1)) == {("a", "b"): "open"}


@pytest.mark.parametrize(
    "planted",
    [Sigmoid(0.1, 0.8, 1.5, 40.0), Sigmoid(0.0, 1.0, 3.0, 15.0), Sigmoid(0.3, 0.5, 1, 60)],
)
def test_a_planted_sigmoid_comes_back(planted: Sigmoid) -> None:
    steps = np.arange(2, 202, 4.0)
    exact = fit(list(steps), list(planted.at(steps)))
    numbers = exact.start, exact.top, exact.steepness, exact.middle
    assert numbers == pytest.approx(
        (planted.start, planted.top, planted.steepness, planted.middle), rel=0.02, abs=0.01
    )


def test_intervals_of_a_curve_cover_what_was_planted() -> None:
    """Of 60 such curves 57 tops and 57 rewards at twice the compute were covered; here are nine."""
    steps, covered = np.arange(5, 201, 5.0), 0
    for seed in range(9):
        generator = np.random.default_rng(seed)
        planted = Sigmoid(0.1, generator.uniform(0.4, 0.9), generator.uniform(0.8, 3), 40.0)
        noisy = planted.at(steps) + generator.normal(0, 0.02, len(steps))
        told = fit_with_interval([(list(steps), list(noisy))])
        assert told.error == pytest.approx(0.02, rel=0.4)
        covered += told.top[0] <= planted.top <= told.top[1]
        covered += told.twice[1] <= planted.at(400.0) <= told.twice[2]
    assert covered >= 15  # 17.1 of 18 expected


def test_a_curve_that_has_not_bent_is_told_to_be_open() -> None:
    steps = list(np.arange(1.0, 31.0))
    planted = Sigmoid(0.0, 1.0, 1.0, 300.0)
    generator = np.random.default_rng(0)
    early = list(planted.at(np.array(steps)) + generator.normal(0, 0.01, 30))
    assert not fit_with_interval([(steps, early)]).bounded
    seeds = [(steps, [value + shift for value in early]) for shift in (0, 0.01, 0.02, 0.03, 0.04)]
    low, high = fit_with_interval(seeds, draws=20).twice[1:]
    assert low < high < low + 0.3
    with pytest.raises(ValueError, match="6 points of positive compute, got 2"):
        fit([0, 1, 2], [0.1, 0.2, 0.3])


def test_the_quantile_of_f_is_that_of_the_tables() -> None:
    tables = {4: 7.709, 6: 5.987, 10: 4.965, 30: 4.171, 120: 3.920}
    for freedom, quantile in tables.items():
        assert _f_quantile(freedom) == pytest.approx(quantile, rel=0.02)


def played(task: str, *rewards: float, text: str = "") -> list[Episode]:
    segments = [Segment(turns=[Turn(message=assistant(text))])]
    return [
        Episode(
            task=task,
            index=n,
            split="test",
            trajectories=[Trajectory(verdict=Verdict.of(reward), segments=segments)],
        )
        for n, reward in enumerate(rewards)
    ]


def test_tasks_are_sharpened_gained_dulled_or_lost() -> None:
    before = [
        *played("sharp", 0, 1), *played("new", 0, 0), *played("dull", 1, 1), *played("lost", 0, 1),
        *played("always", 1, 1), *played("never", 0, 0), *played("only before", 1),
    ]  # fmt: skip
    after = [
        *played("sharp", 1, 1), *played("new", 0, 1), *played("dull", 0, 1), *played("lost", 0, 0),
        *played("always", 1, 1), *played("never", 0, 0),
    ]  # fmt: skip
    told = gains(before, after)
    assert (told.sharpened, told.gained) == (["sharp"], ["new"])
    assert (told.dulled, told.lost) == (["dull"], ["lost"])
    assert (told.always, told.never, told.tasks) == (1, 1, 6)
    # dealt anew to 2 + 2, the one solved sample of `new` and of `lost` is after in 1 of 2
    assert told.by_chance == pytest.approx(1.0)
    assert told.before_pass[1].value == pytest.approx(4 / 12 + 1 / 6)
    with pytest.raises(ValueError, match="share no task"):
        gains(before, played("other", 1))


def test_habits_are_counted_where_they_are_written() -> None:
    thinking = (
        "Let me check: 2 + 2. The answer is 5. Wait, that is wrong. Actually, let me try again. "
        r"The answer is 4, so \boxed{4}."
    )
    told = gains(played("a", 0.0, text=r"\boxed{5}"), played("a", 1.0, text=thinking))
    counts = {one.habit: (one.before, one.after) for one in told.habits}
    assert counts == {"rechecking": (0, 1), "backtracking": (0, 4), "revised answers": (0, 1)}
    assert revisions("no answers at all") == 0.0


def run_folder(folder: Path, model: Path) -> RunReader:
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.toml").write_text(f'steps = 2\n[model]\npath = "{model}"\n')
    (folder / "metrics.jsonl").write_text('{"step": 2, "reward/mean": 0.5}\n')
    lines = [
        f'{{"ordinal": {n}, "group": 0, "task": "{task}", "fate": "trained", "step": {step}, '
        f'"issued": 0, "oldest": 0, "newest": 0, "tokens": 1, "seconds": 1, "reward": {reward}}}\n'
        for n, (task, step, reward) in enumerate(
            [("t", 1, 0.0), ("t", 1, 1.0), ("t", 2, 0.0), ("t", 2, 0.5), ("once", 1, 1.0)]
        )
    ]
    (folder / "rollouts.jsonl").write_text("".join(lines))
    write_episodes(folder / "episodes" / "eval-000000.jsonl", played("a", 0))
    write_episodes(folder / "episodes" / "eval-000002.jsonl", played("a", 1))
    reader = RunReader(folder, folder.name, None)
    reader.refresh()
    return reader


def test_what_rl_did_is_told_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=1)
    reader = run_folder(tmp_path / "run", model)
    seen = experience(reader)
    assert seen is not None
    assert (seen.tasks, seen.best, seen.policy, seen.gap.value) == (1, 1.0, 0.25, 0.75)
    assert main(["explain", str(reader.path), "--gains"]) == 0
    told = capsys.readouterr().out
    assert "gained        1 (0.5 expected by chance)  a" in told
    assert "0.750 (unknown from one task) was experienced and is not done" in told
    assert "changed weights: not known" in told
    assert main(["explain", str(reader.path), "--gains", "--before", "x.jsonl"]) == 2
    assert "name both" in capsys.readouterr().err


def test_changed_weights_are_counted(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    first = write_tiny_policy(tmp_path / "first", hidden=16, layers=1, heads=1)
    last = tmp_path / "last"
    last.mkdir()
    tensors = load_file(first / "model.safetensors")
    total = sum(one.numel() for one in tensors.values())
    generator, moved = random.Random(0), 0
    for name in sorted(tensors)[:3]:
        flat = tensors[name].view(-1)
        for place in generator.sample(range(flat.numel()), 5):
            flat[place] += torch.tensor(0.5)
            moved += 1
    save_file(tensors, last / "model.safetensors")
    told = changed_weights(first, last)
    assert told.share == moved / total
    assert told.share_bfloat16 == moved / total
    assert told.untouched == told.tensors - 3
    assert told.weights == total


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "recipes"),
        (["grpo", "grpo"], "each once"),
        (["grpo", "--tune", "trainer.lr"], "SETTING=VALUE,VALUE"),
        (["grpo", "--seeds", "0"], "at least 1"),
        (["grpo", "--", "--seed=3"], "the sweep sets seeds"),
        (["grpo", "--tune", "trainer.lr=1,2", "--", "--trainer.lr=3"], "is tuned already"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_tuning_seeds_are_no_seeds_of_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--tune", "trainer.lr=1e-4,1e-3", "trainer.weight_decay=0,0.1"]
    words = ["grpo", "rloo", "--seeds", "3", *grid, "--folder", str(tmp_path)]
    assert main(["sweep", *words, "--dry-run", "--", "--steps=2"]) == 0
    runs = capsys.readouterr().out.splitlines()
    assert len(runs) == 2 * 4 * 2 + 2 * 3
    seeds = [int(run.partition("--seed=")[2].split()[0]) for run in runs]
    tuning = {seed for run, seed in zip(runs, seeds, strict=True) if "/tune/" in run}
    assert tuning == {1_000_000, 1_000_001}
    assert {*seeds} - tuning == {1, 2, 3}
    assert all("--steps=2" in run for run in runs)
    assert len({run.partition("--run.folder=")[2] for run in runs}) == len(runs)


@pytest.mark.parametrize("named", ["", 'recipe = "grpo"\n'])
def test_files_of_settings_are_compared_though_their_recipe_is_the_same(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lr, name in enumerate(("low", "high"), start=1):
        settings = f"steps = 1\n[trainer]\nlr = {lr}e-5\n"
        (tmp_path / f"{name}.toml").write_text(named + settings)
        folder = tmp_path / "sweep" / "test" / name / "seed-1"
        (folder / "episodes").mkdir(parents=True)
        (folder / "config.toml").write_text(f'recipe = "grpo"\nseed = 1\n{settings}')
        (folder / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
        trajectory = Trajectory(verdict=Verdict.of(float(lr)), segments=[])
        held_out = Episode(task="test/0", split="test", trajectories=[trajectory])
        write_episodes(folder / "episodes" / "eval-000001.jsonl", [held_out])
    files = [str(tmp_path / f"{name}.toml") for name in ("low", "high")]
    place = ["--folder", str(tmp_path / "sweep"), "--seeds", "1", "--json"]
    assert main(["sweep", *files, *place]) == 0
    told = json.loads(capsys.readouterr().out)["recipes"]
    assert [(one["recipe"], one["mean"]) for one in told] == [("low", 1.0), ("high", 2.0)]
