"""NeMo Gym's own agent, environment servers, collection and resources servers against ours.

The package needs Python 3.12 or newer, so its servers run in an interpreter of their own
(`scripts/peers.sh nemo_gym`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ludus
from ludus.envs.checks import check_env
from ludus.envs.tasks import SPLITS
from ludus.errors import RewardUnavailable
from ludus.integrations.nemo_gym import rows
from ludus.messages import ToolCall, as_messages, assistant
from ludus.verdict import Status
from ludus.wire.address import format_served

from . import games
from .conftest import Serving
from .nemo_gym_package import AGENT, LEGACY, NemoGym, lines_of, python_with_nemo_gym, scripted_model

pytestmark = pytest.mark.filterwarnings("default")
ENV = "peers/sums-v0"
WIRE = json.loads(Path(__file__).with_name("nemo_gym_wire.json").read_text())
COUNTERS = "resources_servers.example_session_state_mgmt"
JUDGED = "resources_servers.equivalence_llm_judge"
TYPED = "environment_servers.single_agent_turn"
SAYS = ("break", "crash", "no idea", "right")
"""What the scripted policy says of a sum, by the sum's remainder."""


def says(text: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(WIRE["final"]).replace("ANSWER", text))
    return made


def choice_for(question: str) -> str:
    return SAYS[int(games.answer_to(question)) % len(SAYS)]


def question_of(row: dict[str, Any]) -> str:
    return str(row["responses_create_params"]["input"][-1]["content"])


def policy(body: dict[str, Any]) -> dict[str, Any] | int:
    """Call `add` once, then answer as `SAYS` has it."""
    if body["input"][-1].get("type") != "function_call_output":
        return dict(WIRE["call"])
    assert body["input"][-1]["output"] == "3"
    question = next(one["content"] for one in body["input"] if one.get("role") == "user")
    choice = choice_for(question)
    return says(games.answer_to(question) if choice == "right" else choice)


def worth(row: dict[str, Any]) -> float | None:
    """The reward of `ludus.make` for what the policy does in a row's episode."""
    local = ludus.make(games.Sums)
    local.reset(seed=0, options={"task": row["ludus"]["task"]})
    local.step(assistant("", [ToolCall(name="add", arguments={"first": 1, "second": 2})]))
    choice = choice_for(question_of(row))
    try:
        said = games.answer_to(question_of(row)) if choice == "right" else choice
        return float(local.step(said)[1])
    except (RewardUnavailable, ZeroDivisionError):
        return None


class Played:
    """NeMo Gym's servers in front of `ludus serve`."""

    def __init__(self, gym: NemoGym, relay: str, typed: str, ludus_url: str) -> None:
        self.gym, self.relay, self.typed, self.ludus_url = gym, relay, typed, ludus_url


@pytest.fixture(scope="module")
def played(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    gym = NemoGym(python_with_nemo_gym(), tmp_path_factory.mktemp("nemo_gym"))
    ours = {"type": "resources_servers", "name": "ludus"}
    agent = {"type": "responses_api_agents", "name": "agent"}
    with serving(ENV) as url, scripted_model(policy) as model:
        gym.at("ludus", "resources_servers", url)
        gym.at("policy_model", "responses_api_models", model)
        gym.add(
            "agent",
            AGENT,
            resources_server=ours,
            model_server={"type": "responses_api_models", "name": "policy_model"},
        )
        relay = gym.add("relay", LEGACY, agent_server=agent)
        typed = gym.add(
            "typed",
            TYPED,
            resources_server=ours,
            agent_server=agent,
            resources_tool_transports=["direct_http"],
            cleanup_timeout_seconds=30,
        )
        with gym.running():
            yield Played(gym, relay, typed, url)


def test_its_agent_plays_with_tools_and_a_failure_fails_the_run(played: Played) -> None:
    earned = list[float | None]()
    for row in rows(ENV, games.EPISODES):
        told = httpx.post(f"{played.relay}/run", json=row, timeout=60)
        expected = worth(row)
        earned.append(expected)
        if expected is None:
            assert told.status_code == 500
            assert "reward" not in told.text.replace("RewardUnavailable: reward unavailable", "")
            continue
        assert told.status_code == 200, told.text
        assert (told.json()["reward"], told.json()["mask_sample"]) == (expected, False)
        kinds = [item["type"] for item in told.json()["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
    assert {None, 0.0, 1.0} == set(earned)  # each case has been met


def test_an_environment_server_seeds_verifies_and_closes(played: Played) -> None:
    """The typed episodes of 0.7: the session has an id, and its row comes in `task_data`."""
    for number, row in enumerate(rows(ENV, 12)):
        task = {"taskset": "sums", "task_id": row["ludus"]["task"]}
        asked = {
            "episode_id": {"rollout_id": f"r{number}"},
            "task": {"task_id": task, "task_input": row},
        }
        told = httpx.post(f"{played.typed}/run", json=asked, timeout=60)
        assert told.status_code == 200, told.text
        expected, said = worth(row), told.json()
        if expected is None:
            assert said["result"] is None
            assert said["failure"]["stage"] == "verification"
            assert not said["failure"]["terminal"]
        else:
            assert said["failure"] is None, said
            assert said["result"]["reward"] == expected


def test_its_collection_keeps_failures_apart_and_out_of_the_mean(
    played: Played, tmp_path: Path
) -> None:
    asked = rows(ENV, 16)
    expected = [worth(row) for row in asked]
    place = tmp_path / "rows.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in asked))
    told = tmp_path / "told" / "rollouts.jsonl"
    told.parent.mkdir()
    by_relay = {"environment_routing_mode": "legacy", "environment_server_name": "relay"}
    kept = {"num_repeats": 2, "route_failures_to_sidecar": True}
    played.gym.collect("agent", place, told, **by_relay, **kept)

    scored = lines_of(told)
    assert sorted((one["ludus"]["task"], one["reward"]) for one in scored) == sorted(
        (row["ludus"]["task"], reward)
        for row, reward in zip(asked, expected, strict=True)
        for _ in range(2)
        if reward is not None
    )
    failed = lines_of(told.with_name("rollouts_failures.jsonl"))
    assert len(failed) == 2 * expected.count(None)
    assert {one["_ng_failure_class"] for one in failed} == {"agent_run_error"}
    assert not [one for one in failed if "reward" in one]

    (metrics,) = json.loads(told.with_name("rollouts_aggregate_metrics.json").read_text())
    counted = [reward for reward in expected if reward is not None]
    assert metrics["key_metrics"]["mean/reward"] == pytest.approx(sum(counted) / len(counted))
    assert metrics["agent_metrics"]["num_repeats"] == 2


def test_aggregated_metrics_are_those_of_the_package(played: Played) -> None:
    samples = [(0, 0, 1.0), (0, 1, 0.5), (1, 0, 0.0), (1, 1, 0.0), (2, 0, 0.25), (2, 1, -1.0)]
    cases = [
        [
            {
                "_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward,
                "mask_sample": number in masked,
            }
            for number, (task, rollout, reward) in enumerate(samples)
        ]
        for masked in ((), (3,), (2, 3, 5), range(6))
    ]  # fmt: skip
    code = (
        "import json, sys; from nemo_gym.reward_profile import compute_aggregate_metrics as whole;"
        "print(json.dumps([whole(one).model_dump() for one in json.load(sys.stdin)]))"
    )
    theirs = subprocess.run(
        [played.gym.python, "-W", "ignore", "-c", code],
        input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    for case, whole in zip(cases, json.loads(theirs.stdout), strict=True):
        asked = {"verify_responses": case}
        ours = httpx.post(f"{played.ludus_url}/aggregate_metrics", json=asked).json()
        for name in ("agent_metrics", "key_metrics"):
            assert ours[name] == pytest.approx({key: whole[name][key] for key in ours[name]})
        groups = zip(ours["group_level_metrics"], whole["group_level_metrics"], strict=True)
        for group, other in groups:
            assert group == pytest.approx({key: other[key] for key in group})


def counts(question: str) -> list[int]:
    """What is added, call by call, in the row of a question."""
    return [1, 2 + int(question.partition(":")[0]) % 2]


def adds(body: dict[str, Any]) -> dict[str, Any]:
    """A policy that adds what `counts` says, and is then done."""
    made = sum(one.get("type") == "function_call_output" for one in body["input"])
    question = next(one["content"] for one in body["input"] if one.get("role") == "user")
    if made == len(counts(question)):
        return says("done")
    call = {**WIRE["call"]["output"][0], "name": "increment_counter", "call_id": f"call_{made}"}
    call["arguments"] = json.dumps({"count": counts(question)[made]})
    return {**WIRE["call"], "output": [call]}


def test_a_hundred_rows_of_a_resources_server_have_the_rewards_of_the_packages_agent(
    tmp_path: Path,
) -> None:
    gym = NemoGym(python_with_nemo_gym(), tmp_path)
    url = gym.add("counters", COUNTERS, domain="agent")
    tools = [
        {"type": "function", "name": "increment_counter", "description": "", "strict": True,
         "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}}},
        {"type": "function", "name": "get_counter_value", "description": "", "strict": True,
         "parameters": {"type": "object", "properties": {}}},
    ]  # fmt: skip
    asked = {
        f"{n}: add twice": {"initial_count": n, "expected_count": n + 3}
        for n in range(games.EPISODES)
    }
    lines = [
        {"responses_create_params": {"input": [{"role": "user", "content": question}],
                                     "tools": tools}, **row}
        for question, row in asked.items()
    ]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with scripted_model(adds) as model:
        gym.at("policy_model", "responses_api_models", model)
        gym.add(
            "agent", AGENT,
            resources_server={"type": "resources_servers", "name": "counters"},
            model_server={"type": "responses_api_models", "name": "policy_model"},
        )  # fmt: skip
        relay = gym.add(
            "relay", LEGACY, agent_server={"type": "responses_api_agents", "name": "agent"}
        )
        with gym.running():
            wanted = {
                question_of(line): httpx.post(f"{relay}/run", json=line, timeout=60).json()[
                    "reward"
                ]
                for line in lines
            }
            assert set(wanted.values()) == {0.0, 1.0}
            env = ludus.make(f"nemo-gym/{url}", data=str(data))
            other = ludus.make(f"nemo-gym/{url}", data=str(data))
            played = dict[str, float]()
            splits = [env.tasks(split) for split in SPLITS]
            for task in (one.at(index).id for one in splits for index in range(one.size or 0)):
                question = as_messages(env.reset(options={"task": task})[0])[-1].text
                other.reset(options={"task": task})  # a session of its own beside the first
                for count in counts(question):
                    call = ToolCall(name="increment_counter", arguments={"count": count}, id="c")
                    env.step(assistant("", [call]))
                _, played[question], over, *_ = env.step("done")
                assert over
                assert other.step("done")[1:3] == (0.0, True)
            env.close()
            other.close()
            assert played == wanted
            named = format_served(f"nemo-gym/{url}", {"data": str(data)})
            assert not check_env(named).failures


def test_a_sample_that_the_package_masks_has_no_reward(tmp_path: Path) -> None:
    """A judge that is down: the server answers 0.0 beside `mask_sample`, which is no reward."""
    gym = NemoGym(python_with_nemo_gym(), tmp_path)
    judged: list[dict[str, Any] | int] = [says("[[A=B]]"), says("[[A!=B]]"), 503]
    answers = iter(judged)
    prompt = tmp_path / "judge.txt"
    prompt.write_text("Question: {question} A: {expected_answer} B: {generated_answer}")
    asked = {"input": [{"role": "user", "content": "the capital of Italy?"}]}
    data = tmp_path / "rows.jsonl"
    row = {"responses_create_params": asked, "expected_answer": "Rome"}
    data.write_text(json.dumps(row) + "\n")
    with scripted_model(lambda _: next(answers)) as judge:
        gym.at("judge", "responses_api_models", judge)
        url = gym.add(
            "judged", JUDGED,
            domain="knowledge",
            judge_model_server={"type": "responses_api_models", "name": "judge"},
            judge_responses_create_params={"input": []},
            judge_prompt_template_fpath=str(prompt),
        )  # fmt: skip
        with gym.running():
            env = ludus.make(f"nemo-gym/{url}", data=str(data))
            for reward in (1.0, 0.0):
                env.reset(seed=0)
                assert env.step("Roma")[1:3] == (reward, True)
            env.reset(seed=0)
            with pytest.raises(RewardUnavailable) as caught:
                env.step("Roma")
            env.close()
    assert caught.value.verdict.status is Status.UNAVAILABLE
    assert caught.value.verdict.reward is None
    assert "judge_failed" in caught.value.verdict.detail
    assert "503" in caught.value.verdict.detail
