"""TRL's `GRPOTrainer`, unmodified, trains on a ludus environment through the bridge."""

from __future__ import annotations

import inspect
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError, MissingExtra, UnknownTask
from ludus.integrations.trl import TrlBridge, verifier_reward
from ludus.messages import ToolCall, assistant

from . import games

trl: Any = pytest.importorskip("trl", reason="make test-peers installs TRL")
torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
chat_templates: Any = pytest.importorskip("transformers.utils.chat_template_utils")
tokenizers: Any = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def bridge() -> Iterator[TrlBridge]:
    made = TrlBridge(games.Sums)
    yield made
    made.close()


def tools_that_trl_lists(environment: object) -> list[Any]:
    """The methods that `GRPOTrainer` takes for tools, by its own rule."""
    found = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    return [
        getattr(environment, name)
        for name, _ in found
        if name not in ("reset", "get_reward") and not name.startswith("_")
    ]


def test_only_the_declared_tools_are_shown(bridge: TrlBridge) -> None:
    shown = tools_that_trl_lists(bridge.environment_factory())
    assert sorted(tool.__name__ for tool in shown) == ["add", "submit"]
    # positive control: without the bridge, the policy could ask for the gold
    bare = {tool.__name__ for tool in tools_that_trl_lists(games.Sums())}
    assert {"gold", "demonstrate", "step", "tasks"} <= bare


def test_the_schemas_are_those_of_the_environment(bridge: TrlBridge) -> None:
    shown = tools_that_trl_lists(bridge.environment_factory())
    read = {tool.__name__: chat_templates.get_json_schema(tool)["function"] for tool in shown}
    for name, tool in games.Sums().tools.items():
        ours = tool.spec.parameters
        assert read[name]["description"] == tool.spec.description
        assert read[name]["parameters"]["required"] == ours["required"]
        for argument, schema in read[name]["parameters"]["properties"].items():
            assert schema["type"] == ours["properties"][argument]["type"]
            assert schema["description"] == ours["properties"][argument]["description"]


def test_nothing_that_the_policy_reads_holds_the_gold(bridge: TrlBridge) -> None:
    env: Any = bridge.environment_factory()
    row = bridge.rows(1)[0]
    seen = [env.reset(**row), json.dumps(bridge.rows(20)), env.add(first=1, second=2)]
    seen += [env.submit(total=0), env.add(first=1, second=2)]
    seen += [str(chat_templates.get_json_schema(tool)) for tool in tools_that_trl_lists(env)]
    assert not [text for text in seen if games.SECRET in text]
    assert seen[2] == "3"
    assert seen[4] == "the episode is over"


def test_rewards_are_those_of_the_environment_and_failures_are_none(bridge: TrlBridge) -> None:
    rows = bridge.rows(6)
    envs: list[Any] = [bridge.environment_factory() for _ in rows]
    questions = [env.reset(**row) for env, row in zip(envs, rows, strict=True)]
    right = [games.answer_to(question) for question in questions]
    said = [right[0], "no idea", "break", "crash", "", right[5]]
    envs[4].submit(total=int(right[4]))  # over before the last words
    envs[5].add(first=1, second=1)
    completions = [[{"role": "assistant", "content": text}] for text in said]
    (reward,) = bridge.reward_funcs
    logged: dict[str, float] = {}
    got = reward(rows, completions, environments=envs, log_metric=logged.__setitem__)
    assert got == [1.0, 0.0, None, None, 1.0, 1.0]
    assert logged == {"ludus/excluded": 2 / 6}
    local = ludus.make(games.Sums)
    for index in (0, 1):
        local.reset(seed=0, options={"task": rows[index]["task"]})
        assert local.step(said[index])[1] == got[index]


@pytest.mark.parametrize("scored_by", ["reward_funcs", "environment"])
def test_a_hundred_episodes_have_the_rewards_of_direct_play(scored_by: Any) -> None:
    bridge, scripts = TrlBridge(games.Sums, scored_by=scored_by), games.scripts()
    envs: list[Any] = [bridge.environment_factory() for _ in scripts]
    rows = bridge.dataset(games.EPISODES)
    for index, (env, script) in enumerate(zip(envs, scripts, strict=True)):
        assert (rows[index]["task"], env.reset(**rows[index])) == (script.task, script.question)
        if script.calls:
            assert env.add(first=1, second=2) == "3"
        if scored_by == "environment":
            env.say(text=script.said)
    if scored_by == "environment":
        rewards = [env.get_reward() for env in envs]
    else:
        said = [[{"role": "assistant", "content": script.said}] for script in scripts]
        rewards = bridge.reward_funcs[0](rows["prompt"], said, environments=envs)
    assert rewards == [script.reward for script in scripts]
    bridge.close()


def test_an_episode_that_cannot_begin_counts_for_nothing() -> None:
    class Closed(games.Sums):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            raise RuntimeError("the data base is away")

    bridge = TrlBridge(Closed)
    env: Any = bridge.environment_factory()
    env.reset(**bridge.rows(1)[0])
    (reward,) = bridge.reward_funcs
    said = [[{"role": "assistant", "content": "1"}]]
    assert reward([""], said, environments=[env]) == [None]
    bridge.close()


def test_mistakes_are_told(bridge: TrlBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(games.Sums):
        @ludus.tool
        def get_reward(self) -> str:
            """A tool of a name that TRL uses."""
            return ""

    with pytest.raises(ConfigError, match="get_reward"):
        TrlBridge(Taken)
    with pytest.raises(UnknownTask, match="train/x"):
        bridge.environment_factory().reset(task="train/x")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="environment_factory"):
        bridge.reward_funcs[0]([""], [""])
    with pytest.raises(ConfigError, match="no column 'gold'"):
        verifier_reward("exact")([""], ["1"])
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"ludus-rl\[trl\]"):
        bridge.dataset(1)


def test_a_verifier_is_a_reward_function() -> None:
    reward = verifier_reward("maths", gold="answer")
    said = [[{"role": "assistant", "content": text}] for text in ("so 1/2", "so 3", "so 3")]
    got = reward(["q"] * 3, said, answer=["0.5", "0.5", "\\nonsense{"])
    assert got == [1.0, 0.0, None]
    ours = [ludus.score("maths", response=s[0]["content"], gold="0.5").reward for s in said[:2]]
    assert got[:2] == ours


# --- the trainer ---------------------------------------------------------------------------------

GROUP, STEPS = 12, 9


def test_a_hundred_episodes_of_the_trainer_have_the_rewards_of_direct_play(
    bridge: TrlBridge, tmp_path: Path
) -> None:
    """A tiny model has learnt by heart to call a tool and then to say one of three things. The
    trainer must get the environment's own reward for each, and none for `break`.
    """
    row = bridge.rows(1, offset=3)[0]
    question = bridge.environment_factory().reset(**row)  # type: ignore[attr-defined]
    endings = [games.answer_to(question), "no idea", "break"]
    seen: list[tuple[list[dict[str, Any]], float | None]] = []

    def reward(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        got = bridge.reward_funcs[0](prompts, completions, **columns)
        seen.extend(zip(completions, got, strict=True))
        return got

    trainer = trl.GRPOTrainer(
        model=model_that_calls(row["prompt"], question, endings, bridge),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=STEPS,
            per_device_train_batch_size=GROUP,
            num_generations=GROUP,
            max_completion_length=256,
            learning_rate=1e-5,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        ),
        processing_class=tokenizer_of(row["prompt"], question, endings, bridge),
        train_dataset=bridge.dataset(1, offset=3),
        environment_factory=bridge.environment_factory,
        reward_funcs=[reward],
    )
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert len(seen) == STEPS * GROUP >= games.EPISODES
    local = ludus.make(games.Sums)
    called, worth = 0, set[float | None]()
    for completion, got in seen:
        local.reset(seed=0, options={"task": row["task"]})
        ours: float | None = 0.0
        *calling, last = completion
        for asked, told in zip(calling[::2], calling[1::2], strict=True):
            # Now and then a wrong one, which is told, or one with keys that nobody reads.
            call = asked["tool_calls"][0]["function"]
            named = ToolCall(name=call["name"], arguments=call["arguments"], id="call_0")
            shown = local.step(assistant("", [named]))[0]
            assert told["content"] == (shown if isinstance(shown, str) else shown[-1].text)
            called += told["content"] == "3"
        assert last["role"] == "assistant"
        try:
            ours = float(local.step(last["content"])[1])
        except ludus.RewardUnavailable:
            ours = None
        assert got == ours
        worth.add(got)
    assert called >= games.EPISODES // 2
    assert worth == {1.0, 0.0, None}
    logs = [log for log in trainer.state.log_history if "reward" in log]
    assert len(logs) == STEPS
    for number, log in enumerate(logs):
        scored = [got for _, got in seen[GROUP * number : GROUP * (number + 1)] if got is not None]
        assert math.isclose(log["reward"], sum(scored) / len(scored), abs_tol=1e-4)
        assert log["tools/call_frequency"] > 0


def conversations(
    prompt: list[dict[str, Any]], question: str, endings: list[str], bridge: TrlBridge
) -> list[dict[str, Any]]:
    tools = tools_that_trl_lists(bridge.environment_factory())
    schemas = [chat_templates.get_json_schema(tool) for tool in tools]
    asked = [*prompt[:-1], {"role": "user", "content": question}]
    call = {"name": "add", "arguments": {"first": 1, "second": 2}}
    called = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": call}],
        },
        {"role": "tool", "name": "add", "content": "3"},
    ]
    return [
        {"messages": [*asked, *called, {"role": "assistant", "content": end}], "tools": schemas}
        for end in endings
    ]


_made: dict[str, Any] = {}


def tokenizer_of(
    prompt: list[dict[str, Any]], question: str, endings: list[str], bridge: TrlBridge
) -> Any:
    """A tokenizer with Qwen3's chat template as TRL ships it, trained on these conversations."""
    if "tokenizer" in _made:
        return _made["tokenizer"]
    folder = Path(trl.__file__).parent / "chat_templates"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1200,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [json.dumps(one) for one in conversations(prompt, question, endings, bridge)]
    template = (folder / "qwen3.jinja").read_text()
    tokenizer.train_from_iterator([*texts, template], trainer)
    marks = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=marks,
    )
    wrapped.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    wrapped.chat_template = template
    _made["tokenizer"] = wrapped
    return wrapped


def model_that_calls(
    prompt: list[dict[str, Any]], question: str, endings: list[str], bridge: TrlBridge
) -> Any:
    """A tiny model that has learnt the three conversations by heart."""
    tokenizer = tokenizer_of(prompt, question, endings, bridge)
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = transformers.Qwen3ForCausalLM(config)
    rows = []
    for one in conversations(prompt, question, endings, bridge):
        start = one["messages"][: len(prompt)]
        told: dict[str, Any] = {"tools": one["tools"], "tokenize": False}
        head = tokenizer.apply_chat_template(start, add_generation_prompt=True, **told)
        result = "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>"
        tail = f"<|im_end|>\n{result}\n<|im_start|>assistant\n"
        parts = [
            (head, False),
            (games.CALL, True),
            (tail, None),
            (one["messages"][-1]["content"], True),
        ]
        ids, labels = [], []
        for text, is_learnt in [*parts, ("<|im_end|>", True)]:
            piece = tokenizer.encode(text, add_special_tokens=False)
            ids += piece
            labels += piece if is_learnt else [-100] * len(piece)
            if is_learnt is None:  # the first token of it ends the call
                labels[-len(piece)] = piece[0]
        rows.append((torch.tensor([ids]), torch.tensor([labels])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        losses = [model(input_ids=ids, labels=labels).loss for ids, labels in rows]
        loss = torch.stack(losses).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def test_a_checkpoint_of_ludus_trains_in_trl(bridge: TrlBridge, tmp_path: Path) -> None:
    """Its chat template is none that TRL knows, and its saved tokenizer tells how to read calls."""
    tiny: Any = pytest.importorskip("ludus.trainer.models.tiny")
    folder = tiny.write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    read = tokenizer.parse_response(games.CALL + "<|im_end|>", prefix="<|im_start|>assistant\n")
    assert read["tool_calls"][0]["function"]["name"] == "add"
    trainer = trl.GRPOTrainer(
        model=str(folder),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=16,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=bridge.dataset(1),
        environment_factory=bridge.environment_factory,
        reward_funcs=bridge.reward_funcs,
    )
    trainer.train()
    assert trainer.state.global_step == 1


def test_environments_that_tell_their_rewards_go_to_another_process() -> None:
    """`AsyncGRPOTrainer` pickles the factory, and asks each environment for its reward."""
    with_rewards = TrlBridge(games.Sums, scored_by="environment")
    factory = pickle.loads(pickle.dumps(with_rewards.environment_factory))
    local = ludus.make(games.Sums)
    right = games.answer_to(str(local.reset(seed=0, options={"task": "train/3"})[0]))
    env = factory()
    assert sorted(tool.__name__ for tool in tools_that_trl_lists(env)) == ["add", "say", "submit"]
    for said, worth in ((right, 1.0), ("no idea", 0.0), ("break", None)):
        env.reset(task="train/3")
        env.say(text=said)
        assert env.get_reward() == worth
    assert with_rewards.reward_funcs == []
    factory.__self__.close()
    with_rewards.close()
    with pytest.raises(ConfigError, match="nothing that a policy says would be heard"):
        TrlBridge("ludus/maths-v0", scored_by="environment", say=False)
