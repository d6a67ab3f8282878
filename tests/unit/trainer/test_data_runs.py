"""Supervised runs on data: `ludus sft --data`, and `ludus train dpo` and its relatives."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent.data.conversations import Conversation
from ludus.agent.episodes import write_episodes
from ludus.agent.trajectory import Episode, Segment, Trajectory, Turn
from ludus.agent.viewer.run import RunReader
from ludus.agent.viewer.views import Runs, view
from ludus.cli.main import main
from ludus.envs import make_async
from ludus.errors import ConfigError
from ludus.messages import Message, Role
from ludus.metrics import read_metrics
from ludus.trainer.config import ModelConfig, PreferenceConfig, RunConfig, SFTConfig, TrainerConfig
from ludus.trainer.data.encoding import rows_of_segments, segments_of
from ludus.trainer.data.preferences import (
    PreferenceRun,
    folder_of,
    load_preferences,
    run_preferences,
)
from ludus.trainer.data.rollout_pairs import RolloutPreferences, accepted_pairs
from ludus.trainer.data.supervised import open_run
from ludus.trainer.models.loading import load_model, load_tokenizer, open_chat, save_model
from ludus.trainer.models.tiny import build_model, build_tokenizer, write_tiny_policy
from ludus.trainer.rollout.batch import as_row
from ludus.trainer.rollout.demonstrations import ExpertPolicy, demonstrate
from ludus.trainer.settings.data import NUMBERS, STRENGTHS
from ludus.trainer.sft import load_examples, run_sft
from ludus.verdict import Verdict
from ludus.wire.address import parse_served


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def talk(count: int) -> list[Any]:
    return [{"prompt": f"say {n}", "completion": f"{n % 7} it is"} for n in range(count)]


def config(model: Path, folder: Path, data: str, *, steps: int = 6, **run: Any) -> SFTConfig:
    return SFTConfig(
        data=data,
        steps=steps,
        batch_size=8,
        held_out=0.2,
        eval_every=3,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=1e-2, warmup_steps=0),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=2, **run),
    )


async def expert_episode(model: Path, env: str, seed: int = 0) -> tuple[Episode, Any, Any]:
    tokenizer = load_tokenizer(model)
    chat = open_chat(ModelConfig(path=str(model)), str(model), tokenizer)
    name, arguments = parse_served(env)
    session = make_async(name, **arguments)
    episode = await demonstrate(ExpertPolicy(session, chat.chat_format), split="train", seed=seed)
    tools = session.env.briefing().tools
    await session.close()
    return episode, tools, chat.chat_format


@pytest.mark.parametrize("env", ["ludus/arithmetic-v0", "ludus/ledger-v0", "ludus/functions-v0"])
async def test_a_conversation_has_the_ids_and_masks_of_the_episode_that_said_it(
    model: Path, env: str
) -> None:
    episode, tools, chat_format = await expert_episode(model, env)
    (segment,) = episode.trajectories[0].segments
    messages = [
        message
        for turn in segment.turns
        for message in [*turn.observation, *([turn.message] if turn.message else [])]
    ]
    said = segments_of(Conversation(messages=messages, tools=list(tools)), chat_format, 4096)
    played = as_row(segment)
    assert played is not None
    (row,) = rows_of_segments(said)
    assert row.ids.tolist() == played.ids
    assert row.mask.astype(int).tolist() == played.mask


@pytest.mark.slow
async def test_it_learns_resumes_as_if_not_cut_and_tells_the_held_out_loss(
    model: Path, tmp_path: Path
) -> None:
    data = lines(tmp_path / "talk.jsonl", talk(60))
    whole = await run_sft(config(model, tmp_path / "whole", data))
    rows = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    held_out = [row["held_out/loss"] for row in rows if "held_out/loss" in row]
    assert len(held_out) == 2
    assert held_out[1] < held_out[0]

    def cut(step: int, steps: int, metrics: dict[str, float]) -> None:
        task = asyncio.current_task()
        if step == 3 and task is not None:
            task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run_sft(config(model, tmp_path / "cut", data), progress=cut))
    resumed = await run_sft(config(model, tmp_path / "cut", data, resume=True))
    expected = load_model(whole).state_dict()
    for name, value in load_model(resumed).state_dict().items():
        assert torch.equal(value, expected[name]), name

    lines(tmp_path / "talk.jsonl", talk(61))
    with pytest.raises(ConfigError, match=r"the data of the run .* have changed"):
        await run_sft(config(model, tmp_path / "cut", data, steps=8, resume=True))


async def test_a_turn_that_is_given_is_read_and_not_learned(model: Path) -> None:
    chat = open_chat(ModelConfig(path=str(model)), str(model), load_tokenizer(model)).chat_format
    turns = [("user", "hi"), ("assistant", "no"), ("user", "again"), ("assistant", "yo")]
    said = [Message(role=Role(role), content=text) for role, text in turns]
    rows = {}
    for given in ((), (1,)):
        conversation = Conversation(messages=said, given=given)
        (rows[given],) = rows_of_segments(segments_of(conversation, chat, 1024))
    assert rows[1,].ids.tolist() == rows[()].ids.tolist()
    learned = {
        given: chat.tokenizer.decode(row.ids[row.mask].tolist()) for given, row in rows.items()
    }
    assert "yo" in learned[1,]
    assert "no" not in learned[1,]
    assert "no" in learned[()]


@pytest.mark.slow
async def test_passes_count_every_conversation_as_often(model: Path, tmp_path: Path) -> None:
    data = lines(tmp_path / "talk.jsonl", talk(20))
    settings = replace(config(model, tmp_path / "run", data), epochs=2.0, held_out=0.0)
    last = await run_sft(settings)
    assert last.name == "step-000005"  # 2 * 20 / 8


async def test_a_long_message_is_left_out_and_nothing_left_is_told(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"prompt": "x" * (1 << 20), "completion": "y"}
    data = lines(tmp_path / "talk.jsonl", [long, *talk(20)])
    await run_sft(config(model, tmp_path / "run", data, steps=1))
    assert "left out 1 longer than 1024 tokens" in caplog.text
    alone = lines(tmp_path / "long.jsonl", [long])
    with pytest.raises(ConfigError, match="is left to train on: left out 1 longer than 1024"):
        await run_sft(config(model, tmp_path / "none", alone))


@pytest.mark.slow
async def test_recorded_episodes_keep_their_ids_and_are_chosen_by_reward(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    episodes = [(await expert_episode(model, "ludus/arithmetic-v0", n))[0] for n in range(4)]
    poor = (await expert_episode(model, "ludus/arithmetic-v0?demo_fault=wrong-operator", 9))[0]
    folder = tmp_path / "run" / "episodes"
    folder.mkdir(parents=True)
    write_episodes(folder / "step-000001.jsonl", [*episodes, episodes[0], poor])
    chat = open_chat(ModelConfig(path=str(model)), str(model), load_tokenizer(model)).chat_format
    settings = replace(config(model, tmp_path, str(tmp_path / "run")), held_out=0.0)
    examples = load_examples(replace(settings, min_reward=1.0), chat, 1024)
    ids = {tuple(row.ids.tolist()) for each in examples.train for row in each.rows[0]}
    assert ids == {tuple(each.trajectories[0].segments[0].ids()) for each in episodes}
    assert "left out 1 repeated episodes" in caplog.text
    assert len(load_examples(settings, chat, 1024).train) == 5
    with pytest.raises(ConfigError, match=r"no episode of .* earned enough"):
        load_examples(replace(settings, min_reward=2.0), chat, 1024)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ConfigError, match="holds no recorded episodes"):
        load_examples(replace(settings, data=str(tmp_path / "nothing")), chat, 1024)


async def test_ids_of_another_tokenizer_are_refused(model: Path, tmp_path: Path) -> None:
    episode = (await expert_episode(model, "ludus/arithmetic-v0"))[0]
    write_episodes(tmp_path / "played.jsonl", [episode])
    other = build_tokenizer(["a phrase", "another"])  # shifts no id of a byte
    vocabulary = dict(sorted(other.get_vocab().items(), key=lambda pair: pair[1]))
    strange = build_tokenizer(marks=[f"<|{n}|>" for n in range(5)])  # shifts all ids by five
    assert len(strange) != len(vocabulary)
    folder = tmp_path / "strange"
    save_model(build_model(len(strange), hidden=16, layers=1, heads=2), strange, folder)
    data = str(tmp_path / "played.jsonl")
    with pytest.raises(ConfigError, match="are of another tokenizer: a turn says"):
        await run_sft(config(folder, tmp_path / "run", data))


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for wrong, why in (
        ({"env": "ludus/arithmetic-v0", "data": "a.jsonl"}, "learns from one of them"),
        ({"epochs": 1.0}, "a setting of --data"),
        ({"min_reward": 1.0}, "a setting of --data"),
        ({"data": "run", "min_reward": float("nan")}, "min_reward must be finite"),
        ({"data": "a.jsonl", "held_out": 1.0}, "held_out is a share"),
    ):
        with pytest.raises(ConfigError, match=why):
            SFTConfig(**wrong)  # type: ignore[arg-type]
    for options, why in (
        ({"method": "dpo", "gamma": 1.0}, "gamma is a setting of simpo"),
        ({"method": "kto", "batch_size": 1}, "compares with answers to other prompts"),
        ({"steps": 3}, "set epochs to 0"),
        ({"epochs": 0.0}, "both 0"),
        ({"label_smoothing": 0.5}, "label_smoothing"),
    ):
        with pytest.raises(ConfigError, match=why):
            PreferenceConfig(data="a.jsonl", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no data named"):
        PreferenceConfig().require_complete()


def test_a_reward_of_conversations_is_refused(model: Path, tmp_path: Path) -> None:
    data = lines(tmp_path / "talk.jsonl", talk(4))
    settings = replace(config(model, tmp_path / "run", data), min_reward=1.0)
    with pytest.raises(ConfigError, match="holds conversations, which have no reward"):
        asyncio.run(run_sft(settings))


# --- preferences ---------------------------------------------------------------------------------


def pairs(count: int) -> list[Any]:
    return [
        {"prompt": f"choose {n}", "chosen": f"yes, {n % 5}", "rejected": f"no, {n % 3}"}
        for n in range(count)
    ]


def labelled(count: int) -> list[Any]:
    return [
        {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
        for row in pairs(count)
        for side in ("chosen", "rejected")
    ]


def preferences(method: Any, model: Path, folder: Path, data: str, **run: Any) -> PreferenceConfig:
    return PreferenceConfig(
        method=method,
        data=data,
        epochs=0.0,
        steps=6,
        batch_size=8,
        held_out=0.2,
        eval_every=0,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=3e-3, warmup_steps=0),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=2, **run),
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", list(STRENGTHS))
async def test_every_method_learns_what_is_chosen(method: str, model: Path, tmp_path: Path) -> None:
    rows = labelled(40) if method == "kto" else pairs(40)
    numbers = {"rewards": [1.0, 0.0], "win_rates": [0.9, 0.2], "other_rewards": [0.1, 0.2]}
    data = lines(tmp_path / "pairs.jsonl", [row | numbers for row in rows])
    settings = preferences(method, model, tmp_path / "run", data)
    # sppo wants log-ratios of eta times a win rate: with 2, six large steps overshoot
    own: dict[str, Any] = {"hypo": {"sample_tokens": 8}, "sppo": {"beta": 20.0}}
    await run_preferences(replace(settings, **own.get(method, {})))
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    if method == "kto":
        assert metrics[-1]["held_out/chosen"] > metrics[-1]["held_out/rejected"]
    else:
        assert metrics[-1]["held_out/accuracy"] > 0.9
        assert metrics[-1]["preference/margin"] > metrics[0]["preference/margin"]
    if method not in ("kto", "simpo", "orpo"):
        assert metrics[0]["preference/margin"] == pytest.approx(0, abs=1e-5)


async def opened_preferences(
    settings: PreferenceConfig, stack: AsyncExitStack
) -> tuple[PreferenceRun, list[Any]]:
    """A run that has not begun, with its first examples."""
    opened = open_run(settings, folder_of(settings), stack, lambda _: settings.model.path)
    run = PreferenceRun(settings, opened, load_preferences(settings, opened))
    return run, run.examples.batch(0, settings.batch_size, seed=0)


@pytest.mark.parametrize("method", ["sppo", "copg", "modpo"])
async def test_the_numbers_of_answers_reach_the_loss(
    method: Any, model: Path, tmp_path: Path
) -> None:
    """At the start every log-ratio is 0, so that the loss can be said by hand."""
    row = pairs(40)
    given = {"win_rates": [0.75, 0.5], "rewards": [3.0, 1.0], "other_rewards": [0.5, 0.25]}
    data = lines(tmp_path / "pairs.jsonl", [each | given for each in row])
    async with AsyncExitStack() as stack:
        run, drawn = await opened_preferences(
            preferences(method, model, tmp_path / "run", data), stack
        )
        batch = run.answers(drawn)
        value, count = run.loss(batch, run.learner.score(batch))
    expected = {
        "sppo": (2 * 0.25) ** 2 / 2,  # eta 2; the rejected answer wins half, and stays
        "copg": 0.0,
        "modpo": math.log(1 + math.exp(0.25 / 0.5)),  # -log sigmoid(-(0.5 - 0.25) / w)
    }[method]
    assert float(value) / float(count) == pytest.approx(expected, abs=1e-4)
    assert batch.inputs.target is not None
    wanted = given[NUMBERS[method]]
    assert {*batch.inputs.target.tolist()} == {*wanted}
    without = lines(tmp_path / "without.jsonl", pairs(4))
    settings = preferences(method, model, tmp_path / "without", without)
    if method == "sppo":  # a pair says who has won
        await run_preferences(replace(settings, steps=1))
    else:
        with pytest.raises(ConfigError, match=f"without {NUMBERS[method]}, a number for each"):
            await run_preferences(settings)


@pytest.mark.slow
async def test_inpo_and_others_take_an_earlier_model_as_their_reference(
    model: Path, tmp_path: Path
) -> None:
    data = lines(tmp_path / "pairs.jsonl", pairs(40))
    first = await run_preferences(preferences("dpo", model, tmp_path / "first", data))
    settings = replace(
        preferences("inpo", first, tmp_path / "inpo", data),
        beta=0.5,
        tau=0.25,
        reference=str(model),
    )
    async with AsyncExitStack() as stack:
        run, drawn = await opened_preferences(settings, stack)
        batch = run.answers(drawn)
        start = run.learner.score(batch)
        value, count = run.loss(batch, start)
    assert batch.inputs.old_logp is not None
    assert torch.allclose(batch.inputs.old_logp, start, atol=1e-5)
    assert batch.inputs.ref_logp is not None
    assert not torch.allclose(batch.inputs.ref_logp, start, atol=1e-2)
    gaps = ((start - batch.inputs.ref_logp) * batch.mask).sum(-1).view(-1, 2)
    by_hand = (0.5 * (gaps[:, 0] - gaps[:, 1]) - 1 / (2 * 0.5)).square()
    assert float(value) == pytest.approx(float(by_hand.sum()), rel=1e-3)
    assert float(count) == len(by_hand)
    await run_preferences(settings)
    marked, strange = build_tokenizer(marks=["<|0|>"]), tmp_path / "strange"
    save_model(build_model(len(marked), hidden=16, layers=1, heads=2), marked, strange)
    with pytest.raises(ConfigError, match="has another tokenizer than the model"):
        await run_preferences(
            replace(settings, reference=str(strange), run=RunConfig(str(strange)))
        )


@pytest.mark.slow
async def test_hypo_pulls_what_is_sampled_towards_the_reference(
    model: Path, tmp_path: Path
) -> None:
    data = lines(tmp_path / "pairs.jsonl", pairs(40))
    away = await run_preferences(
        replace(preferences("dpo", model, tmp_path / "away", data), steps=12)
    )
    distances = {}
    for kl in (0.0, 1.0):
        settings = replace(
            preferences("hypo", away, tmp_path / f"kl{kl}", data),
            reference=str(model), kl=kl, samples=4, sample_tokens=6, steps=8, beta=0.001,
        )  # fmt: skip
        trained = await run_preferences(settings)
        async with AsyncExitStack() as stack:
            probe = replace(settings, model=ModelConfig(path=str(trained)), steps=1)
            probe = replace(probe, run=RunConfig(str(tmp_path / f"probe{kl}"), tensorboard=False))
            run, drawn = await opened_preferences(probe, stack)
            batch = run.answers([], await run.sampled(drawn))
            assert batch.inputs.ref_logp is not None
            ratios = (run.learner.score(batch) - batch.inputs.ref_logp) * batch.mask
            distances[kl] = float(ratios.sum(-1).mean())
    assert 0 <= distances[1.0] < 0.8 * distances[0.0]


async def test_answers_of_hypo_follow_the_seed_of_the_run(model: Path, tmp_path: Path) -> None:
    """The same examples in the same order: only what is sampled may differ."""
    data = lines(tmp_path / "pairs.jsonl", pairs(8))
    said = []
    for number, seed in enumerate((0, 0, 1)):
        settings = replace(
            preferences("hypo", model, tmp_path / f"run{number}", data),
            samples=3, sample_tokens=6, seed=seed, batch_size=2,
        )  # fmt: skip
        async with AsyncExitStack() as stack:
            run, drawn = await opened_preferences(settings, stack)
            said.append([row.ids.tolist() for _, row in await run.sampled(drawn)])
    assert said[0] == said[1] != said[2]
    places = [said[0][first : first + 3] for first in (0, 3)]
    assert all(len({*map(tuple, answers)}) == 3 for answers in places)  # of a prompt, none again


def test_pairs_of_rso_follow_seed_and_prompt_and_are_ordered_by_reward() -> None:
    settings = PreferenceConfig(method="rso", keep=4, rso_beta=0.5)
    rewards = [0.0, 1.0, 2.0, 2.0, 5.0]
    drawn = accepted_pairs(settings, rewards, b"q")
    assert drawn == accepted_pairs(settings, rewards, b"q")
    many = [pair for n in range(400) for pair in accepted_pairs(settings, rewards, b"%d" % n)]
    assert all(rewards[better] > rewards[worse] for better, worse in many)
    assert len({*many}) > 6
    greedy = replace(settings, keep=2, rso_beta=1e-3)
    assert {tuple(accepted_pairs(greedy, [0.0, 1.0, 3.0], b"%d" % n)[0]) for n in range(20)} == {
        (2, 1)
    }


@pytest.mark.slow
async def test_preferences_resume_as_if_not_cut(model: Path, tmp_path: Path) -> None:
    data = lines(tmp_path / "pairs.jsonl", pairs(40))
    whole = await run_preferences(preferences("dpo", model, tmp_path / "whole", data))
    part = replace(preferences("dpo", model, tmp_path / "cut", data), steps=3)
    await run_preferences(part)
    again = preferences("dpo", model, tmp_path / "cut", data, resume=True)
    resumed = await run_preferences(again)
    expected = load_model(whole).state_dict()
    for name, value in load_model(resumed).state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.slow
async def test_groups_of_a_run_are_pairs_and_labels(model: Path, tmp_path: Path) -> None:
    played = []
    for seed in range(12):
        for fault in ("", "?demo_fault=wrong-operator"):
            episode = (await expert_episode(model, f"ludus/arithmetic-v0{fault}", seed))[0]
            episode.task, episode.group = f"train/{seed}", f"g{seed}"
            played.append(episode)
    folder = tmp_path / "run" / "episodes"
    folder.mkdir(parents=True)
    write_episodes(folder / "step-000001.jsonl", played)
    for method in ("dpo", "kto", "sppo", "copg", "rso"):
        settings = replace(
            preferences(method, model, tmp_path / method, str(tmp_path / "run")), steps=2
        )
        await run_preferences(settings)
        assert len(read_metrics(tmp_path / method / "metrics.jsonl")) == 2
    alike = tmp_path / "alike.jsonl"
    write_episodes(alike, played[:1])
    with pytest.raises(ConfigError, match="no group of rollouts whose rewards differ"):
        await run_preferences(preferences("dpo", model, tmp_path / "none", str(alike)))


def rollout(reward: float, **parts: tuple[float, float]) -> Trajectory:
    turn = Turn(out_ids=[5], logprobs=[0.0], versions=[0])
    return Trajectory(
        verdict=Verdict.of(reward, parts=parts), segments=[Segment(prompt_ids=[3], turns=[turn])]
    )


def test_what_rollouts_of_a_task_say_of_a_pair() -> None:
    group = [
        rollout(1.0, right=(1.0, 1.0), short=(0.0, 0.5)),
        rollout(0.0, right=(0.0, 1.0), short=(1.0, 0.5)),
        rollout(1.0, right=(1.0, 1.0), short=(0.2, 0.5)),
    ]

    def numbers(**settings: Any) -> tuple[float, ...]:
        config = PreferenceConfig(data="runs/x", **settings)
        (example,) = RolloutPreferences(config, lambda _: None).examples(group)
        return example.numbers

    assert numbers(method="dpo") == ()
    assert numbers(method="copg") == (1.0, 0.0)
    assert numbers(method="sppo") == (0.75, 0.0)  # beats one, ties with one; beats none
    assert numbers(method="modpo", wish="right") == (0.0, 0.5)
    with pytest.raises(ConfigError, match="needs --wish"):
        numbers(method="modpo")
    with pytest.raises(ConfigError, match="wish is 'nice', and a reward of 'runs/x' has the parts"):
        numbers(method="modpo", wish="nice")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"method": "dpo", "kl": 0.1}, "kl is a setting of hypo, and method is dpo"),
        ({"method": "rdpo", "flip_rate": 0.5}, "flip_rate must be in"),
        ({"method": "hypo", "kl": -0.1}, "kl must"),
        ({"method": "inpo", "tau": 1.0}, "tau is 1, and at most eta"),
        ({"method": "rso", "keep": 1}, "a pair takes 2 answers"),
        ({"method": "orpo", "reference": "x"}, "orpo compares with none"),
        ({"method": "modpo", "weight": 0.0}, "weight must be positive"),
    ],
)
def test_settings_of_the_further_methods_that_cannot_be(settings: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PreferenceConfig(**settings)


@pytest.mark.slow
def test_the_command_line_trains_and_resumes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = lines(tmp_path / "pairs.jsonl", pairs(20)), tmp_path / "run"
    words = ["--data", data, "--model.path", str(model), "--batch-size", "8"]
    words += ["--run.folder", str(run), "--epochs", "1"]
    assert main(["train", "dpo", *words]) == 0
    assert "checkpoint" in capsys.readouterr().out
    assert main(["train", str(run / "config.toml"), "--run.resume", "--epochs", "2"]) == 2
    assert "epochs was 1.0 and is 2.0" in capsys.readouterr().err
    assert main(["train", "dpo", *words[2:]]) == 2
    assert "no data named; add --data FILE" in capsys.readouterr().err
    bad = lines(tmp_path / "labels.jsonl", [{"prompt": "q", "completion": "a", "label": 3}])
    words = ["train", "kto", "--data", bad, "--model.path", str(model)]
    assert main([*words, "--run.folder", str(tmp_path / "kto")]) == 2
    assert "kto's labels are true and false, and a row has 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "rows", "title"),
    [
        (["sft"], talk(20), "supervised"),
        (["train", "dpo"], pairs(20), "dpo"),
        (["train", "reward"], pairs(20), "reward"),
    ],
)
def test_a_run_on_data_says_its_last_loss_and_how_far_it_came(
    verb: list[str],
    rows: list[Any],
    title: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, run = lines(tmp_path / "rows.jsonl", rows), tmp_path / "run"
    words = ["--data", data, "--model.path", str(model), "--batch-size", "8", "--epochs", "1"]
    words += ["--held-out", "0.2", "--run.folder", str(run), "--run.tensorboard", "false"]
    assert main([*verb, *words]) == 0
    (last,) = read_metrics(run / "metrics.jsonl")[-1:]
    steps, held_out = int(last["step"]), f"held-out loss {last['held_out/loss']:.3f}"
    told = f"{title} {steps}/{steps}  loss {last['loss']:.3f}  {held_out}"
    assert told in capsys.readouterr().out
    assert main(["explain", str(run)]) == 0
    said = capsys.readouterr().out
    assert held_out in said
    assert f"step {steps} of {steps}" in said
    reader = RunReader(run, "run", None)
    reader.refresh()
    assert reader.state() == "finished"
    charts = view("overview", Runs([reader]), {})["charts"]
    assert ["loss", "held_out/loss"] in [chart["columns"] for chart in charts]
