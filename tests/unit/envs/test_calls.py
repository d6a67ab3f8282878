"""ludus/calls-v0: which calls are the ones asked for, file by file and drawn."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent import ScriptedPolicy, play
from ludus.agent.parsing import TOOL_FORMATS, tool_format
from ludus.envs import EnvSession, make_async
from ludus.envs.families.calls import Calls, Expected, fault_of_calls
from ludus.envs.families.calls.calls_env import load_problems
from ludus.envs.families.calls.catalogue import FUNCTIONS
from ludus.envs.families.calls.matching import as_schema, example_of, plain
from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant

SCHEMAS: dict[str, dict[str, Any]] = {
    "trip": as_schema(
        {
            "type": "dict",
            "properties": {
                "to": {"type": "string"},
                "days": {"type": "integer"},
                "cost": {"type": "float"},
                "direct": {"type": "boolean"},
                "stops": {"type": "array", "items": {"type": "string"}},
                "rooms": {"type": "array", "items": {"type": "integer"}},
                "home": {"type": "dict"},
                "any": {"type": "any"},
            },
            "required": ["to"],
        }
    ),
    "rest": {"properties": {}},
}


def call(name: str = "trip", **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments, id="c")


def fault(expected: dict[str, list[Any]], **arguments: Any) -> str:
    wanted = {"to": ["Rome"]} | expected
    return fault_of_calls(
        [call(**({"to": "Rome"} | arguments))], [Expected("trip", wanted)], SCHEMAS
    )


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ({}, {}),
        ({"to": ["Paris", "Rome, IT"]}, {"to": "rome it"}),
        ({"to": ["it's"]}, {"to": 'IT"S'}),
        ({"days": [3, ""]}, {}),
        ({"days": [3, ""]}, {"days": 3}),
        ({"days": ["", 0]}, {"days": 0}),
        ({"cost": [3.0]}, {"cost": 3}),
        ({"cost": [2.5]}, {"cost": 2.5}),
        ({"direct": [True]}, {"direct": True}),
        ({"stops": [["Bern", "Milan"]]}, {"stops": ["bern", "MILAN"]}),
        ({"stops": [["a"], ["b"]]}, {"stops": ["b"]}),
        ({"rooms": [[1, 2]]}, {"rooms": [1, 2]}),
        (
            {"home": [{"city": ["Oslo", "Oslo, NO"], "zip": ["1", ""]}]},
            {"home": {"city": "oslo no"}},
        ),
        ({"home": [{"city": "Oslo"}]}, {"home": {"city": "Oslo"}}),
        ({"home": [{"at": [[1, 2]]}]}, {"home": {"at": [1, 2]}}),
        ({"days": ["duration"]}, {"days": "duration"}),  # stands for a name known elsewhere
        ({"any": [[1]]}, {"any": [1]}),
    ],
)
def test_values_that_will_do(expected: dict[str, list[Any]], arguments: dict[str, Any]) -> None:
    assert fault(expected, **arguments) == ""


@pytest.mark.parametrize(
    ("expected", "arguments", "said"),
    [
        ({}, {"to": "Paris"}, "trip: to='Paris' is not what is asked for"),
        ({}, {"to": ["Rome"]}, "is not what is asked for"),
        ({"days": [3]}, {}, "'days' is missing"),
        ({"days": [3]}, {"days": 3.0}, "days=3.0"),
        ({"days": [3]}, {"days": "3"}, "days='3'"),
        ({"days": [1]}, {"days": True}, "days=True"),
        ({"direct": [True]}, {"direct": 1}, "direct=1"),
        ({"direct": [True]}, {"direct": "true"}, "direct='true'"),
        ({"rooms": [[1, 2]]}, {"rooms": [1, 2.0]}, "rooms="),
        ({"stops": [["a", "b"]]}, {"stops": ["b", "a"]}, "stops="),
        ({"stops": [["a", "b"]]}, {"stops": "a, b"}, "stops="),
        ({"home": [{"city": ["Oslo"]}]}, {"home": {"city": "Oslo", "x": 1}}, "home="),
        ({"home": [{"city": ["Oslo"]}]}, {"home": {}}, "home="),
        ({}, {"bogus": 1}, "'bogus' is not asked for"),
        ({}, {"days": 1}, "'days' is not asked for"),
    ],
)
def test_values_that_will_not(
    expected: dict[str, list[Any]], arguments: dict[str, Any], said: str
) -> None:
    assert said in fault(expected, **arguments)


def test_a_required_argument_is_missed_even_if_its_answer_may_be_empty() -> None:
    wanted = [Expected("trip", {"to": ["Rome", ""]})]
    assert "'to' is missing" in fault_of_calls([call()], wanted, SCHEMAS)
    assert example_of(wanted[0], ["to"]) == {"to": "Rome"}
    assert example_of(wanted[0]) == {}


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([], "0 calls where 2 are asked for"),
        ([call(to="A")], "1 calls where 2"),
        ([call(to="A"), call(to="B"), call(to="A")], "3 calls where 2"),
        ([call(to="A"), call("rest")], "'rest' is called where 'trip' is asked for"),
        ([call(to="A"), call(to="A")], "to='A' is not what"),
        ([call(to="A"), ToolCall(name="", error="cut")], "a call could not be read: cut"),
        ([call(to="B"), call(to="A")], ""),
        ([call(to="A"), call(to="B")], ""),
    ],
)
def test_several_calls_are_matched_in_any_order(calls: list[ToolCall], said: str) -> None:
    wanted = [Expected("trip", {"to": ["A"]}), Expected("trip", {"to": ["B"]})]
    fault = fault_of_calls(calls, wanted, SCHEMAS)
    assert said in fault
    assert bool(said) == bool(fault)


def test_a_call_that_would_do_for_two_is_given_to_the_one_that_needs_it() -> None:
    wanted = [Expected("trip", {"to": ["A", "B"]}), Expected("trip", {"to": ["A"]})]
    assert fault_of_calls([call(to="A"), call(to="B")], wanted, SCHEMAS) == ""


@given(st.text(max_size=20))
@settings(max_examples=80)
def test_texts_are_compared_without_case_spaces_and_marks(text: str) -> None:
    assert plain(f" {text}. ") == plain(text)
    assert plain(plain(text)) == plain(text)


def test_types_of_other_languages_become_json_schema() -> None:
    given_schema = {
        "type": "dict",
        "properties": {
            "a": {"type": "float", "description": "d", "optional": True},
            "b": {"type": "array", "items": {"type": "tuple", "items": {"type": "String"}}},
            "c": {"type": "any"},
            "d": {"type": "array"},
        },
        "required": ["a"],
    }
    made = as_schema(given_schema)
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["properties"]["a"] == {"type": "number", "description": "d"}
    assert made["properties"]["b"]["items"] == {"type": "array", "items": {"type": "string"}}
    assert made["properties"]["c"] == {}
    assert made["properties"]["d"] == {"type": "array", "items": {}}


# --- drawn problems -----------------------------------------------------------------------------


def test_drawn_problems_have_valid_schemas_and_experts_that_keep_to_them() -> None:
    problems = Calls(functions=6).problems
    counts: Counter[int] = Counter()
    for index in range(300):
        task = problems.tasks("train").at(index)
        problem = problems.problem(task)
        counts[len(problem.expected)] += 1
        assert task.difficulty == len(problem.expected)
        assert len({one.name for one in problem.functions}) == 6
        known = {one.name: one.parameters for one in problem.functions}
        for wanted in problem.expected:
            jsonschema.Draft202012Validator.check_schema(known[wanted.name])
            jsonschema.validate(example_of(wanted), known[wanted.name])
    assert set(counts) == {1, 2, 3}
    assert min(counts.values()) > 60


def test_what_is_asked_for_stands_in_the_request() -> None:
    problems = Calls(min_calls=1, max_calls=1).problems
    for index in range(200):
        problem = problems.problem(problems.tasks("train").at(index))
        said = problem.messages[0].text
        for name, values in problem.expected[0].arguments.items():
            if isinstance(values[0], str) and "" not in values:
                assert values[0] in said, name
            if isinstance(values[0], list):
                assert all(one in said for one in values[0])


def test_splits_share_no_request() -> None:
    problems = Calls(max_calls=1).problems
    said = {
        split: {
            problems.problem(problems.tasks(split).at(index)).messages[0].text
            for index in range(300)
        }
        for split in ("train", "validation", "test")
    }
    assert not said["train"] & said["test"]
    assert not said["train"] & said["validation"]
    assert not said["validation"] & said["test"]


async def test_where_nothing_will_do_saying_so_is_right_and_calling_is_not() -> None:
    async def reward(said: str | Message) -> float:
        env = make_async("ludus/calls-v0", irrelevant=1.0)
        return (await play(env, ScriptedPolicy(lambda _: said), seed=4)).trajectories[0].ret

    assert await reward("I cannot do that.") == 1.0
    assert await reward("") == 0.0
    assert (
        await reward(assistant("", [ToolCall(name="set_timer", arguments={"minutes": 3})])) == 0.0
    )
    assert await reward(assistant("", [ToolCall(name="", error="not JSON")])) == 0.0


async def test_what_is_wrong_is_said_to_people_in_the_verdict() -> None:
    policy = ScriptedPolicy(lambda _: assistant("", [ToolCall(name="divine", id="1")]))
    made = (await play(make_async("ludus/calls-v0", max_calls=1), policy)).trajectories[0]
    assert "'divine' is called where" in made.verdict.detail
    assert made.verdict.reward == 0.0


def test_a_function_that_wants_a_list_says_in_which_order() -> None:
    lists = [
        argument.schema
        for function in FUNCTIONS
        for argument in function.slots
        if argument.schema["type"] == "array"
    ]
    assert len(lists) == 2
    assert all("order of the request" in schema["description"] for schema in lists)


@pytest.mark.parametrize("name", TOOL_FORMATS)
async def test_an_expert_is_understood_in_every_format(name: str) -> None:
    """Each call of the expert, written by a model's format, is read back and found right."""
    form = tool_format(name)
    session = EnvSession(Calls(min_calls=1, max_calls=1))
    right = 0
    for seed in range(20):
        _, info = await session.reset(seed=seed)
        said = session.env.demonstrate()
        assert isinstance(said, Message)
        written = form.render(said.tool_calls)
        read = form.parse(written, tools=info["briefing"].tools)
        right += (await session.step(read))[1] == 1.0
    assert right == 20


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"min_calls": 0}, "1 <= min_calls"),
        ({"max_calls": 9}, "max_calls <= 8"),
        ({"functions": 2}, "functions must be from max_calls"),
        ({"functions": 90}, "functions must be from max_calls"),
        ({"irrelevant": 2.0}, "irrelevant is a share"),
        ({"source": "nothing.jsonl"}, "cannot read 'nothing.jsonl'"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Calls(**arguments)


# --- files --------------------------------------------------------------------------------------

FUNCTION = {"name": "f", "description": "F.", "parameters": {"type": "dict", "properties": {}}}
ROW: dict[str, Any] = {"id": "a", "question": [[{"role": "user", "content": "Do f."}]]}


def written(folder: Path, *rows: dict[str, Any]) -> str:
    file = folder / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_answers_may_stand_in_the_rows_beside_them_or_elsewhere(tmp_path: Path) -> None:
    row = {**ROW, "function": [FUNCTION]}
    truth = [{"f": {}}]
    inside = load_problems([written(tmp_path, {**row, "ground_truth": truth})])
    source = written(tmp_path, row)
    (tmp_path / "possible_answer").mkdir()
    beside_file = tmp_path / "possible_answer" / "problems.jsonl"
    beside_file.write_text(json.dumps({"id": "a", "ground_truth": truth}) + "\n")
    beside = load_problems([source])
    beside_file.rename(tmp_path / "elsewhere.jsonl")
    elsewhere = load_problems([source], str(tmp_path / "elsewhere.jsonl"))
    assert inside == beside == elsewhere
    assert inside[0].expected == [Expected("f", {})]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "function": [FUNCTION]}, "it has no answer"),
        ({**ROW, "function": [{}], "ground_truth": []}, "has no name"),
        ({"id": "a", "function": [FUNCTION], "ground_truth": []}, "no question"),
        ({**ROW, "question": [[{"role": "x"}]], "function": [], "ground_truth": []}, "problem 'a'"),
        ({**ROW, "function": [FUNCTION], "ground_truth": [3]}, "problem 'a'"),
        *(
            ({**ROW, "question": [[turn]], "function": [FUNCTION], "ground_truth": []}, said)
            for turn, said in (
                ({"content": "Do f."}, "problem 'a': 'None' is not a valid Role"),
                ({"role": "user"}, "problem 'a': a message needs a role and a text"),
                ({"role": "user", "content": None}, "a message needs a role and a text"),
            )
        ),
    ],
)
def test_rows_that_are_no_problems_are_named(
    row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_problems([written(tmp_path, row)])


DATA = Path(os.environ.get("LUDUS_DATA_DIR", "/nowhere")) / "tools"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="LUDUS_DATA_DIR is not set")


@needs_data
@pytest.mark.parametrize(
    ("name", "count"), [("simple_python", 400), ("parallel", 200), ("irrelevance", 240)]
)
async def test_the_leaderboards_files_load_and_their_answers_score(name: str, count: int) -> None:
    source = str(DATA / f"BFCL_v4_{name}.jsonl")
    session = EnvSession(Calls(source, validation=0.0, test=1.0))
    tasks = session.env.tasks("test")
    assert tasks.size == count
    for index in range(count):
        task = tasks.at(index)
        _, info = await session.reset(options={"task": task.id, "split": "test"})
        for one in info["briefing"].tools:
            jsonschema.Draft202012Validator.check_schema(one.parameters)
        said = session.env.demonstrate()
        assert said is not None
        assert (await session.step(said))[1] == 1.0, task.id


@needs_data
async def test_on_the_leaderboards_files_talk_earns_nothing() -> None:
    sources = [str(DATA / f"BFCL_v4_{name}.jsonl") for name in ("simple_python", "parallel")]
    session = EnvSession(Calls(sources, validation=0.0, test=1.0))
    tasks = session.env.tasks("test")
    assert tasks.size == 600
    for index in range(0, 600, 7):
        await session.reset(options={"task": tasks.at(index).id, "split": "test"})
        assert (await session.step("I would call it."))[1] == 0.0
