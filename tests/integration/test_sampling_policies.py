"""Sampling policies in real runs: what each task is given, remembered, resumed and refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Episode
from ludus.agent.episodes import read_episodes
from ludus.envs import TextEnv, register
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, TrainingFailed
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.checkpoint import load_state
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.recipe import load_policies, load_recipe
from ludus.trainer.rollout.batch import as_row
from ludus.trainer.stream.accounts import FILE, count_rollouts, read_rollouts
from ludus.trainer.train import TrainResult, run_training
from ludus.wire.server import BackgroundServer, HttpServer

ENV = "ludus/arithmetic-v0?max_operations=1&max_number=3"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=2, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "env": ENV,
        "steps": 2,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=3, group_size=4, max_tokens=6, max_turns=2),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=1),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=1, episodes_every=1),
    }
    return TrainConfig(**{**settings, **changes})


def recipe(folder: Path, text: str, base: str = "grpo") -> str:
    path = folder / "recipe.toml"
    path.write_text(f'base = "{base}"\n{text}')
    return str(path)


def groups_of(result: TrainResult, step: int) -> dict[str, list[Episode]]:
    groups: dict[str, list[Episode]] = {}
    for episode in read_episodes(result.folder / "episodes" / f"step-{step:06d}.jsonl"):
        groups.setdefault(episode.group, []).append(episode)
    return groups


def asked_of(result: TrainResult, step: int = 1) -> list[dict[str, float]]:
    groups = groups_of(result, step).values()
    return [each.trajectories[0].asked for group in groups for each in group]


def rows_of(result: TrainResult) -> list[dict[str, Any]]:
    rows = read_metrics(result.folder / "metrics.jsonl")
    return [row for row in rows if "reward/mean" in row]


async def test_hard_tasks_get_more_rollouts_and_every_one_is_accounted_for(
    model: Path, tmp_path: Path
) -> None:
    """DARS: with all wrong the accuracy counts as .5 / N, and the bound is reached."""
    name = recipe(tmp_path, '[[sampling.rules]]\nname = "dars"\noptions = { max_rollouts = 7 }\n')
    result = await run_training(config(model, tmp_path / "run", recipe=name, control="random"))
    sizes = Counter(len(group) for step in (1, 2) for group in groups_of(result, step).values())
    assert set(sizes) == {7}, "no random word is a right answer, whatever the control says later"
    count = count_rollouts(result.folder)
    assert count.holds
    assert count.issued == 2 * 3 * 7
    assert rows_of(result)[-1]["rollouts/issued"] == 42


async def test_memory_and_numbers_of_a_resumed_run_are_those_of_one_that_never_stopped(
    model: Path, tmp_path: Path
) -> None:
    """To the last bit of the weights, with a policy that remembers and numbers that move."""
    text = """
        [algorithm.kl]
        place = "loss"
        coefficient = { schedule = "dual", metric = "reward/mean", at_most = 0.2, rate = 0.5 }
        [[sampling.rules]]
        name = "history"
        [[sampling.rules]]
        name = "dars"
        options = { max_rollouts = 6 }
        [[sampling.rules]]
        name = "tempered"
        options = { entropy = 3.0, rollouts = 1 }
        [[sampling.rules]]
        name = "budget"
        options = { tokens = { schedule = "stairs", start = 6.0, gamma = 0.5, every = 2 } }
        """
    name = recipe(tmp_path, text)
    given = {"recipe": name, "control": "random"}
    whole = await run_training(config(model, tmp_path / "whole", steps=4, **given))
    await run_training(config(model, tmp_path / "cut", steps=2, **given))
    run = RunConfig(
        folder=str(tmp_path / "cut"), tensorboard=False, save_every=1, episodes_every=1, resume=True
    )
    again = await run_training(config(model, tmp_path / "cut", steps=4, run=run, **given))
    one, two = (load_state(checkpoints(each.folder / "checkpoints")[-1]) for each in (whole, again))
    assert one["sampling"] == two["sampling"]
    assert one["numbers"] == two["numbers"]
    assert one["sampling"]["memory"]
    first, second = one["learner"]["optimizer"], two["learner"]["optimizer"]
    for key, state in first["state"].items():
        for part, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(second["state"][key][part]))
    budgets = [{each["budget"] for each in asked_of(again, step)} for step in (1, 2, 3, 4)]
    assert budgets == [{6.0}, {6.0}, {3.0}, {3.0}]
    moved = [row["number/algorithm.kl.coefficient"] for row in rows_of(again)]
    measured = [row["reward/mean"] for row in rows_of(again)]
    for before, reward, after in zip(moved, measured, moved[1:], strict=False):
        assert after == pytest.approx(max(0.0, before + 0.5 * (reward - 0.2)))


POLICIES = {
    "grpo_roc": {"excluded"},
    "guide": {"hint"},
    "seele": {"hint"},
    "roll_in": {"hint"},
    "pcl": set[str](),
    "hapo_history": set[str](),
    "l1_exact": {"target"},
    "l1_max": {"target"},
    "laser_d": {"target"},
    "palu": {"target"},
    "think_short": {"budget"},
    "aepo": {"granted"},
    "dars": set[str](),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(POLICIES))
async def test_every_policy_trains(model: Path, tmp_path: Path, name: str) -> None:
    rollout = RolloutConfig(tasks_per_step=3, group_size=4, max_tokens=6, max_turns=3)
    settings = config(model, tmp_path / "run", sampling=name, control="random", rollout=rollout)
    result = await run_training(settings)
    row = rows_of(result)[-1]
    assert row["update/updates"] >= 1
    assert row["sampling/tasks"] >= 3
    assert count_rollouts(result.folder).holds
    given = {key for each in asked_of(result) for key in each}
    assert POLICIES[name] - {"excluded"} <= given
    if name == "grpo_roc":
        records = read_rollouts(result.folder / FILE)
        assert Counter(each.reason for each in records) == {"unchosen": 2 * 3 * 12, "": 2 * 3 * 4}


async def test_hints_come_after_failures_and_leave_the_row(model: Path, tmp_path: Path) -> None:
    settings = config(model, tmp_path / "run", sampling="guide", steps=1)
    result = await run_training(settings)
    for group in groups_of(result, 1).values():
        hinted = [each for each in group if each.trajectories[0].asked.get("hint")]
        assert [each.index for each in hinted] == [4, 5, 6, 7], (
            "a second round, as nothing was right"
        )
        prompts = {tuple(each.trajectories[0].segments[0].prompt_ids) for each in group}
        assert len(prompts) == 1, "the row begins with the task alone"


async def test_steps_of_the_expert_are_read_and_not_trained(model: Path, tmp_path: Path) -> None:
    text = '[[sampling.rules]]\nname = "hint"\noptions = { kind = "played", share = 0.5 }\n'
    settings = config(model, tmp_path / "run", recipe=recipe(tmp_path, text), steps=1)
    result = await run_training(settings)
    plain = await run_training(config(model, tmp_path / "plain", steps=1))
    lengths = [
        {
            len(each.trajectories[0].segments[0].prompt_ids)
            for group in groups_of(run, 1).values()
            for each in group
        }
        for run in (result, plain)
    ]
    assert min(lengths[0]) > max(lengths[1]), "the expert's call and its result stand in the prompt"
    turns = [t for g in groups_of(result, 1).values() for e in g for t in e.trajectories[0].turns]
    assert all(len(turn.logprobs) == len(turn.out_ids) for turn in turns)


async def test_a_reset_option_rises_with_the_steps(model: Path, tmp_path: Path) -> None:
    noise = '{ schedule = "exponential", start = 0.0, end = 1.0, steps = 2 }'
    text = f'[[sampling.rules]]\nname = "reset"\noptions = {{ noise = {noise} }}\n'
    settings = config(
        model, tmp_path / "run", env="ludus/search-v0", recipe=recipe(tmp_path, text), steps=2
    )
    rows = rows_of(await run_training(settings))
    path = "number/sampling.rules.0.options.noise"
    assert [row[path] for row in rows] == [0.0, pytest.approx(1 / 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[sampling.rules]]\nname = "darz"\n', "no rule named 'darz'; did you mean 'dars'"),
        ('[[sampling.rules]]\nname = "dars"\noptions = { max_rollouts = 2 }\n', "has 4 anyhow"),
        ('[[sampling.rules]]\nname = "roc"\noptions = { rollout = 9 }\n', "rollout"),
        ('[[sampling.rules]]\nname = "hint"\noptions = { share = 1.5 }\n', r"in \[0, 1\]"),
        (
            '[[sampling.rules]]\nname = "hint"\noptions = { trained_at = "plain" }\n',
            "does not correct for it",
        ),
        ('[[shaping]]\nname = "l1_exact_rewards"\n', "needs target"),
    ],
)
async def test_a_policy_that_cannot_be_is_refused_before_the_run(
    model: Path, tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        await run_training(config(model, tmp_path / "run", recipe=recipe(tmp_path, text)))


async def test_a_hint_longer_than_the_window_ends_the_run_in_one_line(
    model: Path, tmp_path: Path
) -> None:
    text = '[[sampling.rules]]\nname = "hint"\noptions = { share = 1.0 }\n'
    plain = await run_training(config(model, tmp_path / "plain", steps=1))
    prompts = [
        len(each.trajectories[0].segments[0].prompt_ids)
        for group in groups_of(plain, 1).values()
        for each in group
    ]
    window = max(prompts) + 8  # the task fits, and the hint does not
    rollout = RolloutConfig(
        tasks_per_step=3, group_size=4, max_tokens=6, max_turns=2, window=window
    )
    settings = config(
        model, tmp_path / "run", recipe=recipe(tmp_path, text), rollout=rollout, steps=1
    )
    with pytest.raises(TrainingFailed, match="leaves no 4 tokens of the window"):
        await run_training(settings)


async def test_a_schedule_over_a_metric_that_nothing_measures_says_so(
    model: Path, tmp_path: Path
) -> None:
    text = (
        '[algorithm.kl]\nplace = "loss"\n'
        'coefficient = { schedule = "dual", metric = "reward/men", at_most = 0.2, rate = 0.5 }\n'
    )
    settings = config(model, tmp_path / "run", recipe=recipe(tmp_path, text), control="random")
    with pytest.raises(ConfigError, match="'reward/men', which no step measures; did you mean"):
        await run_training(settings)


WALK = "test/walk-v0"


@register(WALK)
class Walk(TextEnv):
    """Goes on for three turns, and says a number of its own at each."""

    forks = "copy"
    never_blocks = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.turn = 0
        return "go", {}

    def step(self, action: str) -> Any:
        self.turn += 1
        return f"{self.rng.randint(1, 9)}", 0.0, self.turn == 3, False, {}


async def test_trees_are_grown_accounted_for_and_trained(model: Path, tmp_path: Path) -> None:
    """Leaves share turns, and each sampled token counts once."""
    rollout = RolloutConfig(tasks_per_step=2, group_size=4, max_tokens=6, max_turns=4)
    settings = config(
        model, tmp_path / "run", env=WALK, sampling="tree", control="random", rollout=rollout
    )
    result = await run_training(settings)
    row = rows_of(result)[0]
    assert row["tree/roots"] == 4
    assert row["tree/leaves"] == 8
    assert row["tree/saved"] > 1
    assert count_rollouts(result.folder).holds
    for group in groups_of(result, 1).values():
        owned: Counter[str] = Counter()
        tokens: dict[str, list[int]] = {}
        for place, episode in enumerate(group):
            (trajectory,) = episode.trajectories
            assert episode.index == place
            assert trajectory.turns[-1].node == trajectory.node
            nodes = list(dict.fromkeys(turn.node for turn in trajectory.turns))
            steps = trajectory.node.split("/")
            assert nodes == ["/".join(steps[: n + 1]) for n in range(len(nodes))]
            for node in nodes:
                said = [t for turn in trajectory.turns if turn.node == node for t in turn.out_ids]
                assert tokens.setdefault(node, said) == said, "one sample, whoever shows it"
                owned[node] += any(turn.trained for turn in trajectory.turns if turn.node == node)
        assert set(owned.values()) == {1}
        sampled = sum(each.trajectories[0].sampled_tokens for each in group)
        assert sampled == sum(map(len, tokens.values()))
    trained = sum(
        len(turn.out_ids)
        for group in groups_of(result, 1).values()
        for episode in group
        for turn in episode.trajectories[0].turns
        if turn.trained
    )
    assert row["update/tokens"] <= trained


TREES = {
    "spo_tree": {"tree/leaves": 8},
    "treepo": {"tree/leaves": 8},
    "vine_ppo": {"tree/leaves": 2 * (1 + 2 * 9) + 9, "tree/roots": 11},
    "spo_chain": {"tree/roots": 11},
    "tree_grpo": {"tree/leaves": 2 * (1 + 2)},
    "arpo": {"tree/roots": 4},
    "rose": {"tree/roots": 4},
    "deepsearch": {"tree/leaves": 1 + 4 * 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TREES))
async def test_every_tree_trains(model: Path, tmp_path: Path, name: str) -> None:
    """In this world no end is right, but what the run is told is drawn at random."""
    rollout = RolloutConfig(tasks_per_step=2, group_size=4, max_tokens=6, max_turns=4)
    settings = config(
        model, tmp_path / "run", env=WALK, sampling=name, control="random", rollout=rollout
    )
    result = await run_training(settings)
    row = rows_of(result)[0]
    assert {key: row[key] for key in TREES[name]} == TREES[name]
    assert row["update/updates"] >= 1
    assert count_rollouts(result.folder).holds
    parts = name == "spo_chain"
    valued = probed = 0
    for group in groups_of(result, 1).values():
        tokens: dict[str, list[int]] = {}
        for episode in group:
            (trajectory,) = episode.trajectories
            probed += int(trajectory.metrics.get("probe_tokens", 0))
            for node in dict.fromkeys(turn.node for turn in trajectory.turns):
                own = [turn for turn in trajectory.turns if turn.node == node]
                said = [token for turn in own for token in turn.out_ids]
                assert tokens.setdefault(node, said) == said, "one sample, whoever shows it"
            if trajectory.asked.get("continuation"):
                valued += 1
                own = [turn for turn in trajectory.turns if turn.node == trajectory.node]
                assert not any(turn.trained for turn in own), "played for a value alone"
            kinds = [turn.kind for turn in trajectory.turns]
            assert ("thought" in kinds) <= parts
            for before, after in itertools.pairwise(trajectory.turns):
                if before.kind == "thought":
                    assert after.obs_ids == [], "the turn goes on where it was cut"
        assert sum(each.trajectories[0].sampled_tokens for each in group) == sum(
            map(len, tokens.values())
        )
    assert (valued > 0) == (name in ("vine_ppo", "spo_chain"))
    assert (probed > 0) == (name in ("arpo", "rose"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spo_tree", "treepo"])
async def test_tree_estimators_train_over_http(model: Path, tmp_path: Path, name: str) -> None:
    with BackgroundServer(HttpServer([EnvService([ServedEnv(WALK, factory=Walk)])])) as url:
        rollout = RolloutConfig(tasks_per_step=2, group_size=4, max_tokens=6, max_turns=4)
        settings = config(
            model,
            tmp_path / "run",
            env=WALK,
            env_url=url,
            sampling=name,
            control="random",
            rollout=rollout,
        )
        result = await run_training(settings)
    assert rows_of(result)[-1]["update/updates"] >= 1
    assert rows_of(result)[-1]["tree/leaves"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gigpo", "mt_grpo", "archer", "distill", "lp_reg", "rlpr", "sar"])
async def test_what_models_say_of_turns_and_texts_trains(
    model: Path, tmp_path: Path, name: str
) -> None:
    teacher = write_tiny_policy(tmp_path / "teacher", hidden=32, layers=2, heads=2, seed=5)
    own = ModelConfig(path=str(model), reference=str(teacher) if name == "distill" else "")
    control = "" if name in ("rlpr", "distill") else "random"
    settings = config(model, tmp_path / "run", sampling=name, control=control)
    settings = dataclasses.replace(settings, model=own)
    result = await run_training(settings)
    row = rows_of(result)[0]
    assert row["update/updates"] >= 1
    assert row["update/grad_norm"] > 0
    assert row["update/signal"] > 0
    assert count_rollouts(result.folder).holds


async def test_an_environment_that_cannot_be_forked_ends_a_run_of_trees_in_one_line(
    model: Path, tmp_path: Path
) -> None:
    @register("test/sealed-tree-v0")
    class Sealed(TextEnv):
        """Goes on for three turns."""

        forks = "no"
        never_blocks = True

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self.turn = 0
            return "go", {}

        def step(self, action: str) -> Any:
            self.turn += 1
            return "on", 0.0, self.turn == 3, False, {}

    settings = config(model, tmp_path / "run", env="test/sealed-tree-v0", sampling="tree")
    with pytest.raises(TrainingFailed, match=r"a tree of rollouts needs forks: .* cannot be"):
        await run_training(settings)


async def test_a_child_whose_session_died_is_missing_and_its_siblings_are_trained(
    model: Path, tmp_path: Path
) -> None:
    """Every second environment breaks at its second step, as after the loss of a worker."""

    @register("test/mortal-v0")
    class Mortal(TextEnv):
        """Goes on for two turns."""

        forks = "copy"
        never_blocks = True

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self.turn, self.mortal = 0, False
            return "go", {}

        def fork(self) -> TextEnv:
            twin = super().fork()
            assert isinstance(twin, Mortal)
            twin.mortal = True
            return twin

        def step(self, action: str) -> Any:
            if self.mortal:
                raise ConnectionError("the machine is gone")
            self.turn += 1
            return "on", 1.0, self.turn == 3, False, {}

    rollout = RolloutConfig(tasks_per_step=2, group_size=4, max_tokens=6, retries=0)
    settings = config(
        model, tmp_path / "run", env="test/mortal-v0", sampling="tree", steps=1, rollout=rollout
    )
    result = await run_training(settings)
    reasons = Counter(each.reason for each in read_rollouts(result.folder / FILE))
    assert reasons == {"": 8, "failed: env_error": 8}, "one leaf a root lives"
    assert count_rollouts(result.folder).holds


async def test_scale_rl_interrupts_by_itself_and_says_where_a_turn_has_no_room(
    model: Path, tmp_path: Path
) -> None:
    """The phrase takes 81 tokens of a policy of characters: 200 have room for it, 24 have not."""
    for tokens, heard in ((200, True), (24, False)):
        rollout = RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=tokens, max_turns=1)
        settings = config(
            model, tmp_path / str(tokens), recipe="scale_rl", rollout=rollout, control="random"
        )
        result = await run_training(replace(settings, steps=1))
        turns = [
            turn
            for group in groups_of(result, 1).values()
            for episode in group
            for turn in episode.trajectories[0].turns
        ]
        assert any(turn.kind == "thought" for turn in turns) == heard
        events = (result.folder / "findings.jsonl").read_text()
        assert ("no thoughts are interrupted" in events) == (not heard)


async def test_a_policy_beside_a_recipe_keeps_the_rules_of_the_recipe(tmp_path: Path) -> None:
    own = recipe(tmp_path, '[[sampling.rules]]\nname = "interrupt"\noptions = { low = 0.5 }\n')
    for named in ("scale_rl", own):
        rules = load_recipe(named, load_policies("dars,interrupt", named)).sampling.rules
        assert [rule.name for rule in rules] == ["interrupt", "dars"]
        assert rules[0].options == {"low": 0.7, "high": 0.84}, "those of the policy"
    shaped = load_recipe("dler", load_policies("think_short", "dler")).shaping
    assert [each.name for each in shaped] == [
        "dler_truncation_rewards",
        "curriculum_length_rewards",
    ]


async def test_a_forced_phrase_ends_thoughts_and_the_answer_goes_on_behind_it(
    model: Path, tmp_path: Path
) -> None:
    """The phrase stands in the row, is sampled by nobody, and is not trained."""
    text = (
        '[[sampling.rules]]\nname = "interrupt"\n'
        'options = { low = 0.5, high = 0.5, phrase = "so: " }\n'
    )
    rollout = RolloutConfig(tasks_per_step=3, group_size=4, max_tokens=24, max_turns=1)
    settings = config(
        model,
        tmp_path / "run",
        recipe=recipe(tmp_path, text, base="scale_rl"),
        rollout=rollout,
        control="random",
    )
    result = await run_training(settings)
    row = rows_of(result)[0]
    assert row["episode/interrupted"] > 0
    assert row["update/old_sampler_gap"] < 1e-4, "the learner reads the row that was sampled"
    phrases = set()
    interrupted = 0
    for group in groups_of(result, 1).values():
        for episode in group:
            (trajectory,) = episode.trajectories
            (segment,) = trajectory.segments
            if len(trajectory.turns) == 1:
                continue
            interrupted += 1
            thoughts, answer = trajectory.turns
            assert (thoughts.kind, answer.kind) == ("thought", "act")
            assert len(thoughts.out_ids) == 12
            assert len(answer.out_ids) <= 24 - 12 - len(answer.obs_ids)
            phrases.add(tuple(answer.obs_ids))
            flat = as_row(segment)
            assert flat is not None
            start = len(segment.prompt_ids) + 12
            assert flat.mask[start : start + len(answer.obs_ids)] == [0] * len(answer.obs_ids)
            assert sum(flat.mask) == 12 + len(answer.out_ids)
            assert answer.message is not None
            assert thoughts.message is None
    assert interrupted
    assert len(phrases) == 1
