"""Short runs with one planted fault each, beside healthy runs of shipped recipes: do the findings
name the fault, and are they silent about the healthy ones?

python benchmarks/planted_runs.py run --seeds 0 1          # 66 runs of half a minute, 20 steps each
python benchmarks/planted_runs.py score                    # seed 0 calibrates, seed 1 is reported
python benchmarks/planted_runs.py keep                     # what the tests read
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import ludus
from ludus.config import as_table, build, merge, read_toml
from ludus.envs import make_async
from ludus.envs.families.arithmetic import MISTAKEN_FOR, OPERATORS, Arithmetic, evaluate
from ludus.rewards import Sample
from ludus.trainer.config import SFTConfig, TrainConfig
from ludus.trainer.findings.diagnosis import diagnose
from ludus.trainer.findings.summary import summary_of
from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
from ludus.verdict import Verdict

TASKS = "max_operations=2&max_number=9&operators=%2B*"
ENV = f"planted/arithmetic-v0?{TASKS}"
STEPS = 20
STICKS_AFTER = 8 * 64
"""Answers after which a verifier sticks: those of eight steps."""


@ludus.register("planted/arithmetic-v0")
class Planted(Arithmetic):
    """Arithmetic with a fault of the environment.

    Args:
        fault: what is wrong.
        options: those of arithmetic.
    """

    answers = 0
    """Answers of training that the run has had."""

    def __init__(self, *, fault: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.fault = fault

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the answer, as far as the fault lets it."""
        observation, reward, *others = super().step(action)
        if self.fault == "crash" and draw(self.expression.text) < 0.4:
            raise RuntimeError("the expression has no entry in the table")
        if self.fault == "hacked" and self.task.split == "train":
            reward = float(str(action).strip() == self.mistaken())
        if self.fault == "never":
            reward = 0.0
        if self.fault == "constant":
            reward = 0.5
        if self.fault == "truncates":
            return observation, 0.0, False, True, others[-1]
        if self.task.split == "train":
            reward = self.trained(reward)
        return (observation, reward, *others)

    def trained(self, reward: float) -> float:
        """Return what an answer earns in training alone."""
        Planted.answers += 1
        if self.fault == "percent":
            return 100 * reward
        stuck = {"sticks-at-one": 1.0, "sticks-at-zero": 0.0}.get(self.fault)
        return reward if stuck is None or Planted.answers <= STICKS_AFTER else stuck

    def mistaken(self) -> str:
        """The result with the first operator mistaken, which the warm start often answers."""
        text = self.expression.text
        place = next(n for n, character in enumerate(text) if character in OPERATORS)
        return str(evaluate(text[:place] + MISTAKEN_FOR[text[place]] + text[place + 1 :]))


def draw(text: str) -> float:
    """Return a number from 0 to 1 that follows from `text`."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


@ludus.verifier("planted-crash")
def crash(sample: Sample) -> Verdict:
    """A verifier that has a bug."""
    if draw(f"{sample.prompt[-1].text}/{sample.text}") < 0.4:
        raise KeyError("answer")
    return Verdict.of(0.0)


@ludus.verifier("planted-length")
def length(sample: Sample) -> Verdict:
    """Pays for every character."""
    return Verdict.of(min(1.0, len(sample.text) / 64))


@ludus.verifier("planted-format")
def form(sample: Sample) -> Verdict:
    """Pays for the look of an answer."""
    return Verdict.of(float(len(sample.text) % 2))


@ludus.verifier("planted-judge")
def judge(sample: Sample) -> Verdict:
    """A judge that disagrees with itself."""
    text = "/".join(message.text + str(message.tool_calls) for message in sample.response)
    return Verdict.of(draw(f"{sample.prompt[-1].text}/{text}"), metrics={"judge/spread": 0.4})


@dataclass(frozen=True)
class Case:
    """A run: what differs from the usual settings, and what should be found."""

    expected: tuple[str, ...]
    """The findings of which one has to be the first cause told; empty for a healthy run."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    demo: str = f"ludus/arithmetic-v0?{TASKS}&demo_fault=wrong-operator&demo_fault_rate=0.6"
    """What the policy was warmed up on; with a mistake, so that there is something to learn."""
    other_template: bool = False
    """Whether the model is given another chat template than it was trained with."""
    stuck_engine: bool = False
    """Whether the engine keeps its first weights and says that it has the new ones."""


def _env(fault: str) -> str:
    return f"{ENV}&fault={fault}"


def _reward(name: str, weight: float) -> list[dict[str, Any]]:
    return [{"name": name, "weight": weight}]


FAULTS: dict[str, Case] = {
    "rate-too-high": Case(
        ("collapse", "moved_far"), {"trainer": {"lr": 1e-2, "updates_per_step": 4, "max_kl": 0.0}}
    ),
    "cispo-too-far": Case(
        ("collapse", "moved_far"), {"recipe": "cispo", "trainer": {"lr": 5e-3, "max_kl": 0.0}}
    ),
    "rate-too-low": Case(("flat",), {"trainer": {"lr": 1e-8}}),
    "warm-up-without-end": Case(("no_rate", "flat"), {"trainer": {"warmup_steps": 1_000_000}}),
    "never-right": Case(("all_wrong",), {"env": _env("never")}),
    "solved-before": Case(("solved",), demo=f"ludus/arithmetic-v0?{TASKS}"),
    "one-reward-for-all": Case(("no_spread",), {"env": _env("constant")}),
    "verifier-breaks": Case(("without_reward",), {"reward": _reward("planted-crash", 1.0)}),
    "environment-breaks": Case(("without_reward",), {"env": _env("crash")}),
    "answers-cut": Case(("cut_turns",), {"rollout": {"max_tokens": 6}}),
    "tool-format": Case(("tool_format",), {"model": {"tool_format": "llama3_json"}}),
    "no-exploration": Case(("identical",), {"rollout": {"temperature": 0.02}}),
    "length-pays": Case(
        ("length_bias",),
        {
            "env": "ludus/tally-v0",
            "rollout": {"max_tokens": 96},
            "reward": _reward("planted-length", 3.0),
        },
        demo="ludus/tally-v0?demo_recheck=0.5&demo_slip=0.6",
    ),
    "a-part-dominates": Case(("part_dominates",), {"reward": _reward("planted-format", 8.0)}),
    "reward-hacked": Case(("reward_hacking",), {"env": _env("hacked")}),
    "engine-stands-still": Case(("sampler_gap",), stuck_engine=True),
    "too-stale": Case(("stale",), {"overlap": {"max_staleness": 8}, "trainer": {"lr": 2e-3}}),
    "verifier-sticks-at-one": Case(("held_out_behind",), {"env": _env("sticks-at-one")}),
    "verifier-sticks-at-zero": Case(("held_out_ahead",), {"env": _env("sticks-at-zero")}),
    "reward-in-per-cent": Case(("above_scale",), {"env": _env("percent")}),
    "all-truncated": Case(("no_turns_left",), {"env": _env("truncates")}),
    "another-template": Case(("strange_prompt",), other_template=True),
    "judge-of-noise": Case(("judge_noise",), {"reward": _reward("planted-judge", 1.0)}),
}
HEALTHY = {
    recipe: Case((), {"recipe": recipe})
    for recipe in (
        "grpo",
        "dr_grpo",
        "dapo",
        "gspo",
        "cispo",
        "rloo",
        "reinforce_pp",
        "scale_rl",
        "lite_ppo",
        "minimax_m1",
    )
}
RUNS = FAULTS | HEALTHY


def settings(folder: Path, model: Path, seed: int, planted: Case) -> TrainConfig:
    """Return the settings of a run."""
    usual = {
        "env": ENV,
        "steps": STEPS,
        "seed": seed,
        "model": {"path": str(model)},
        "rollout": {"tasks_per_step": 8, "group_size": 8, "max_tokens": 32},
        "trainer": {"lr": 3e-4},
        "eval": {"tasks": 48, "every": 5, "temperature": 1.0},
        "run": {"folder": str(folder), "tensorboard": False, "episodes_every": 0},
    }
    return build(TrainConfig, merge(usual, planted.changes))


def warm_start(out: Path, demo: str, seed: int) -> Path:
    """Return a small policy that has learned what is demonstrated."""
    from ludus.trainer.sft import run_sft

    folder = out / f"warm-{hashlib.sha256(demo.encode()).hexdigest()[:6]}-{seed}"
    mark = folder / "done"
    if mark.exists():
        return Path(mark.read_text())
    shutil.rmtree(folder, ignore_errors=True)
    phrases = briefing_phrases(make_async(demo.partition("?")[0]).env.briefing())
    model = write_tiny_policy(folder / "model", phrases=phrases, seed=seed, hidden=96, heads=4)
    config = {
        "env": demo,
        "steps": 500,
        "batch_size": 32,
        "seed": seed,
        "model": {"path": str(model)},
        "trainer": {"lr": 3e-3, "warmup_steps": 10, "lr_decay": "linear"},
        "run": {"folder": str(folder / "sft"), "tensorboard": False},
    }
    path = asyncio.run(run_sft(build(SFTConfig, config)))
    mark.write_text(str(path))
    return path


def with_other_template(model: Path, folder: Path) -> Path:
    """Return a copy of a model whose chat template marks roles in another way."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    file = folder / "chat_template.jinja"
    template = file.read_text()
    for role in ("' + message.role + '", "assistant"):
        template = template.replace(f"<|im_start|>{role}\\n", f"[{role}] ")
    file.write_text(template)
    return folder


@contextmanager
def standing_still() -> Generator[None]:
    """Let local engines keep their first weights."""
    from ludus.trainer.engines.local import LocalEngine

    async def keep(self: Any, source: object, version: int) -> None:
        self._batch.version = version

    taking: Callable[..., Any] = LocalEngine.set_weights
    LocalEngine.set_weights = keep  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        LocalEngine.set_weights = taking  # type: ignore[method-assign]


def run(out: Path, name: str, seed: int) -> None:
    """Make a run, unless it was made."""
    from ludus.errors import LudusError
    from ludus.trainer.train import run_training

    folder, planted = out / f"{name}-{seed}", RUNS[name]
    if (folder / "done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    Planted.answers = 0
    model = warm_start(out, planted.demo, seed)
    if planted.other_template:
        model = with_other_template(model, out / f"template-{seed}")
    try:
        if planted.stuck_engine:
            with standing_still():
                asyncio.run(run_training(settings(folder, model, seed, planted)))
        else:
            asyncio.run(run_training(settings(folder, model, seed, planted)))
    except LudusError as error:  # a run that ends so is a run whose findings count
        print(f"{name}-{seed} ended: {error}")
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    (folder / "done").touch()


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "score", "keep"])
    parser.add_argument("--out", type=Path, default=Path("runs/planted"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--only", nargs="*", default=list(RUNS))
    parser.add_argument("--kept", type=Path, default=KEPT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        for seed in options.seeds:
            for name in options.only:
                run(options.out, name, seed)
                rewards = json.dumps(last_rewards(options.out / f"{name}-{seed}"))
                print(name, seed, rewards, flush=True)
    if options.what == "keep":
        keep(options.out, options.seeds[-1], options.kept)
    if options.what == "score":
        for seed in options.seeds:
            score(options.out, seed)


@dataclass(frozen=True)
class Told:
    """What the findings said of a run."""

    name: str
    seed: int
    first: str
    """The finding that a person is shown first: the first without a cause, the severest first."""
    roots: tuple[str, ...]
    """Every warning and error without a cause that was open at some step."""
    state: str
    lines: int
    """Lines of the summary at the end."""


def told(folder: Path, name: str, seed: int) -> Told:
    """Return what the findings say of a run."""
    diagnosis = diagnose(folder)
    shown = [each for each in diagnosis.findings.values() if each.severity != "info"]
    roots = sorted(
        (each for each in shown if each.cause is None),
        key=lambda each: (each.status != "open", each.severity != "error", each.since),
    )
    names = tuple(each.name for each in roots)
    expected = RUNS[name].expected
    first = names[0] if names else ("solved" if "solved" in expected else "")
    if "solved" in expected and diagnosis.state != "solved":
        first = "none"
    return Told(name, seed, first, names, diagnosis.state or "", len(summary_of(diagnosis)))


def score(out: Path, seed: int) -> None:
    """Print what was told of each run of a seed, and precision and recall."""
    right, wrong, missed, alarms = 0, 0, 0, 0
    for name, case in RUNS.items():
        folder = out / f"{name}-{seed}"
        if not (folder / "done").exists():
            continue
        report = told(folder, name, seed)
        good = report.first in case.expected if case.expected else not report.roots
        print(
            f"{'  ' if good else '! '}{name:22} {report.state:9} {report.lines} "
            f"{', '.join(report.roots)}"
        )
        if not case.expected:
            alarms += not good
        else:
            right += good
            missed += not good and not report.roots
            wrong += not good and bool(report.roots)
    print(f"seed {seed}: named {right}, named another {wrong}, silent {missed}; {alarms} alarms")


KEPT = Path(__file__).parents[1] / "tests" / "unit" / "trainer" / "planted_runs.json"
READ = (
    "step", "episode/", "reward/", "group/", "stop/", "turn/", "kind/act_entropy", "update/",
    "staleness/m", "bias/", "eval/mean", "eval/standard_error", "eval/episodes",
)  # fmt: skip
"""Beginnings of the columns that rules read."""


def keep(out: Path, seed: int, path: Path) -> None:
    """Write the runs of a seed as the tests read them: the columns that rules read, three digits,
    the settings that are no defaults.
    """
    kept: dict[str, Any] = {}
    for name, case in RUNS.items():
        folder = out / f"{name}-{seed}"
        if not (folder / "done").exists():
            continue
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        columns = sorted({each for row in rows for each in row if each.startswith(READ)})
        recipe = json.loads((folder / "recipe.json").read_text())
        kept[name] = {
            "expected": case.expected,
            "settings": dict(settings_of(folder)),
            "recipe": {"algorithm": recipe["algorithm"], "sampling": recipe["sampling"]},
            "columns": columns,
            "rows": [[_short(row.get(column)) for column in columns] for row in rows],
        }
    lines = (f"{json.dumps(name)}: {_dense(run)}" for name, run in kept.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings of a run that are not the defaults; the model's path from `--out` on."""
    usual, table = as_table(TrainConfig()), read_toml(folder / "config.toml")
    model = Path(table["model"]["path"])
    if model.is_relative_to(folder.parent):
        table["model"]["path"] = str(model.relative_to(folder.parent))
    return {
        name: {key: each for key, each in value.items() if each != usual[name].get(key)}
        if isinstance(value, dict)
        else value
        for name, value in table.items()
        if value != usual.get(name) and name != "run"
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _dense(run: Mapping[str, Any]) -> str:
    return json.dumps(run, separators=(",", ":")).replace(".0,", ",").replace(".0]", "]")


def last_rewards(folder: Path) -> list[float]:
    """Return the rewards of every fourth step, to look at."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [round(row["reward/mean"], 2) for row in rows if "reward/mean" in row][::4]


if __name__ == "__main__":
    main()
