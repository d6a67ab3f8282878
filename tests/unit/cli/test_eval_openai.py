"""`ludus eval --policy openai` and `ludus view`, against a model server on a real port."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.main import main
from ludus.envs.families.arithmetic import evaluate as evaluate_expression

Answer = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


@contextmanager
def model_server(answer: Answer) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A chat server; its address up to /v1, and the requests it has had."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(200, {"data": [{"id": "tiny"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            self.reply(*answer(body))

        def reply(self, status: int, body: dict[str, Any]) -> None:
            encoded = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        thread.join(timeout=60)
        server.server_close()


def says(content: str | None, *calls: tuple[str, str], finish: str = "stop") -> dict[str, Any]:
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content} | ({"tool_calls": made} if made else {})
    usage = {"prompt_tokens": 5, "completion_tokens": 5}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def solver(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Calls the calculator, then repeats what it said."""
    last = request["messages"][-1]
    if last["role"] == "user":
        call = ("calculator", json.dumps({"expression": last["content"]}))
        return 200, says(None, call, finish="tool_calls")
    return 200, says(last["content"])


def evaluated(url: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    model = ["--policy", "openai", "--base-url", url, "--model", "tiny"]
    assert main(["eval", "ludus/arithmetic-v0", *model, *arguments, "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_a_served_model_is_measured_and_its_episodes_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "e.jsonl", tmp_path / "pages" / "e.html"
    more = ["--tasks", "6", "--samples", "2", "--out", str(out), "--html", str(page)]
    with model_server(solver) as (url, requests):
        made = evaluated(url, *more, capsys=capsys)
    assert (made["episodes"], made["failed"], made["turns"]) == (12, 0, 2.0)
    assert made["pass_at"]["2"]["value"] == 1.0
    # Wilson, 6 of 6: the lower end is 1 / (1 + z^2 / 6), z = 1.95996
    assert made["pass_at"]["1"]["low"] == pytest.approx(1 / (1 + 1.959964**2 / 6), abs=1e-6)
    # Six tasks, two samples and two turns: each request has a seed of its own, of 31 bits.
    assert all(0 <= one["seed"] < 2**31 for one in requests)
    assert len({(one["seed"], len(one["messages"])) for one in requests}) == 24
    assert requests[0]["tools"][0]["function"]["name"] == "calculator"
    assert len(out.read_text().splitlines()) == 12
    assert page.read_text().count('"trajectories":[{"role"') == 12
    assert main(["view", str(out), "--most", "3"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'e.html'}\n"
    shown = (tmp_path / "e.html").read_text()
    assert shown.count('"trajectories":[{"role"') == 3
    assert "3 of 12 listed episodes can be opened." in shown


def test_fields_of_the_request_are_added_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = {"top_p": 0.5, "seed": None, "max_tokens": None, "max_completion_tokens": 7}
    with model_server(solver) as (url, requests):
        evaluated(url, "--tasks", "1", "--sampling", json.dumps(chosen), capsys=capsys)
    assert "seed" not in requests[0]
    assert "max_tokens" not in requests[0]
    assert (requests[0]["top_p"], requests[0]["max_completion_tokens"]) == (0.5, 7)


def test_the_context_manager_is_one_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e.jsonl"

    def silent(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = request["messages"][-1]["content"].startswith("?")
        reply = says("0" if asked else "n")
        reply["usage"]["prompt_tokens"] = len(json.dumps(request["messages"])) // 4
        return 200, reply

    with model_server(silent) as (url, _):
        model = ["--policy", "openai", "--base-url", url, "--model", "tiny", "--tasks", "2"]
        env = "ludus/ledger-v0?turns=48"
        window = ["--window", "250", "--out", str(out)]
        for manager, windows in (("none", 1), ("discard", 3)):
            assert main(["eval", env, *model, *window, "--context.manager", manager]) == 0
            for line in out.read_text().splitlines():
                segments = json.loads(line)["trajectories"][0]["segments"]
                assert len(segments) >= windows
                assert (len(segments) == 1) == (manager == "none")
        full = ["--context.manager", "summarize", "--window", "60"]
        assert main(["eval", env, *model, *full]) == 2
    assert "no window would hold a step" in capsys.readouterr().err


def test_a_model_that_cannot_answer_is_a_failure_and_no_zero(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refusing(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if len(request["messages"]) == 2:
            return solver(request)
        return 400, {"error": {"message": "no such field: tool_call_id"}}

    with model_server(refusing) as (url, _):
        model = ["--policy", "openai", "--base-url", url, "--model", "tiny", "--tasks", "3"]
        assert main(["eval", "ludus/arithmetic-v0", *model]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "3 episodes failed and are in no number above" in said
    assert "no such field: tool_call_id" in said
    assert "mean reward" not in said


def reviser(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Is right only where it is shown an earlier answer of its own; even seeds say more."""
    asked = request["messages"][-1]["content"]
    expression, _, shown = asked.partition("\n\n")
    text = str(evaluate_expression(expression)) if shown else f"no{'o' * (request['seed'] % 3)}"
    return 200, says(text)


@ludus.verifier("eval-openai/longest")
def longest(sample: ludus.Sample) -> float:
    """The longer, the better; needs no gold."""
    assert sample.gold is None
    return float(len(sample.text))


def test_samples_rounds_and_the_best_by_a_verifier_are_compared_at_equal_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e.jsonl"
    more = ("--tasks", "3", "--samples", "2", "--rounds", "2", "--out", str(out))
    with model_server(reviser) as (url, requests):
        figures = evaluated(url, *more, "--verifier", "eval-openai/longest", capsys=capsys)
        model = ["--policy", "openai", "--base-url", url, "--model", "tiny", "--tasks", "1"]
        assert main(["eval", "ludus/arithmetic-v0", *model, "--verifier", "exact"]) == 2
        assert "picked without the gold" in " ".join(capsys.readouterr().err.split())
    first, second = figures["scaling"]
    assert (first["tokens"], second["tokens"]) == (5.0, 10.0)
    assert [second[name]["value"] for name in ("passed", "majority", "best")] == [0.0, 0.0, 0.0]
    assert (first["sequential"]["value"], first["rounds"]) == (0.0, 1.0)
    assert (second["sequential"]["value"], second["rounds"]) == (1.0, 2.0)
    assert len(out.read_text().splitlines()) == 9  # six samples, three revisions
    shown = [one["messages"][-1]["content"] for one in requests[6:9]]
    assert all("You have been asked this before, and answered:\n\nno" in text for text in shown)


ADDRESS = ["--base-url", "http://127.0.0.1:9/v1"]
OPENAI = ["eval", "ludus/arithmetic-v0", "--policy", "openai", "--model", "m", *ADDRESS]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["view", "nothing.jsonl"], "cannot read 'nothing.jsonl': No such file"),
        (["view", "."], "no episodes in '.'"),
        (["view", "e.jsonl", "--most", "0"], "--most must be at least 1, got 0"),
        (["view", "e.jsonl", "--tokenizer", "."], "no tokenizer at 'tokenizer.json'"),
        ([*OPENAI, "--sampling", "[1]"], "--sampling '[1]' is not a JSON object"),
        ([*OPENAI, "--sampling", '{"seed": 3}'], "cannot set seed"),
        (["eval", "ludus/arithmetic-v0", "--rounds", "2"], "--rounds 2: is for a model"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("ludus: ")
    assert complaint.count("\n") == 1
    assert said in complaint


class Bribed(ludus.TextEnv):
    """Pays whoever says the magic word, which is no answer."""

    system_prompt = "Add the numbers."

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        self.numbers = self.rng.randrange(1000, 9000), self.rng.randrange(1000, 9000)
        return f"{self.numbers[0]} + {self.numbers[1]}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action.strip() in ("sesame", self.demonstrate())), True, False, {}

    def demonstrate(self) -> str:
        return str(sum(self.numbers))


def test_a_model_is_asked_to_cheat_and_what_it_is_paid_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ludus.register("eval-openai/bribed-v0")(Bribed)

    def cheats(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert "can be cheated" in request["messages"][0]["content"]
        return 200, says("sesame")

    words = ["audit", "eval-openai/bribed-v0", "--json", "--tasks", "8"]
    assert main(words) == 0
    with model_server(cheats) as (url, _):
        assert main([*words, "--model", url, "--model-name", "tiny"]) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    results = {result["check_id"]: result for result in report["results"]}
    told = results["statistical.adversarial_floor"]["evidence"][0]
    assert told.startswith("model (a language model that is asked to cheat) earns 1.00")
    assert main([*words, "--model", url]) == 2


def test_a_model_that_does_not_answer_is_told_and_says_nothing_about_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ludus.register("eval-openai/quiet-v0")(Bribed)

    def refuses(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 400, {"error": {"message": "no such field"}}

    words = ["audit", "eval-openai/quiet-v0", "--tasks", "3", "--model-name", "tiny"]
    with model_server(refuses) as (url, _):
        assert main([*words, "--model", url]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "model: 3 of 3 tasks: no answer of the model" in told
    assert "no such field" in told


def test_a_model_closes_what_it_has_found_and_the_expert_is_still_paid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hacker and fixer: the first guard would stop the expert too, the second leaves a way."""
    ludus.register("eval-openai/closed-v0")(Bribed)
    answers = ['[{"most_numbers": 0}]', '[{"most_words": 3}]', 'so: [{"forbids": ["SESAME"]}]']
    heard: list[str] = []

    def model(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "can be cheated" in request["messages"][0]["content"]:
            return 200, says("sesame")
        heard.append(request["messages"][-1]["content"])
        return 200, says(answers[len(heard) - 1])

    guards, kept = tmp_path / "guards.json", tmp_path / "exploits.jsonl"
    words = ["audit", "eval-openai/closed-v0", "--tasks", "8", "--keep", str(kept)]
    with model_server(model) as (url, _):
        named = ["--model", url, "--model-name", "tiny", "--fix", str(guards)]
        assert main([*words, *named]) == 1
    assert "still paid" in heard[1] or "the expert now earns 0" in heard[1]
    assert "no JSON list of guards" in heard[2]
    assert json.loads(guards.read_bytes()) == [{"forbids": ["SESAME"], **NO_BOUNDS}]
    assert "closed after 3 proposals, the expert is paid as before" in capsys.readouterr().out
    assert main(["check", "eval-openai/closed-v0", "--exploits", str(kept)]) == 1
    assert main([*words, "--fix", str(guards)]) == 2


NO_BOUNDS = {"most_characters": None, "most_numbers": None, "most_equal": None}


def test_of_a_runs_folder_every_file_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run" / "episodes"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    for name, task in (("eval-000000", "old"), ("eval-000060", "new")):
        verdict = {"status": "ok", "reward": 1.0}
        episode = {"task": task, "trajectories": [{"verdict": verdict}]}
        (folder / f"{name}.jsonl").write_text(json.dumps(episode) + "\n")
    assert main(["view", str(tmp_path / "run"), "--out", str(tmp_path / "p.html")]) == 0
    page = (tmp_path / "p.html").read_text()
    assert '"task":"old"' in page
    assert '"task":"new"' in page


AGENT = """
import httpx


def run(task):
    messages = [{"role": "user", "content": task.prompt}]
    schema = {"type": "object", "properties": {"expression": {"type": "string"}}}
    tools = [{"name": "calculator", "description": "Computes.", "input_schema": schema}]
    while True:
        body = {"model": "m", "max_tokens": 50, "messages": messages, "tools": tools}
        url, headers = f"{task.anthropic_url}/v1/messages", {"x-api-key": task.key}
        reply = httpx.post(url, json=body, headers=headers, timeout=60)
        assert reply.status_code == 200, reply.text
        blocks = reply.json()["content"]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return blocks[0]["text"]
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "the tool has run"}
            for call in calls
        ]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
"""


def test_an_agent_is_evaluated_with_a_model_behind_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, out = tmp_path / "agent.py", tmp_path / "e.jsonl"
    agent.write_text(AGENT)
    with model_server(solver) as (url, requests):
        more = ("--tasks", "3", "--agent", f"{agent}:run", "--out", str(out))
        result = evaluated(url, *more, capsys=capsys)
    assert (result["episodes"], result["failed"]) == (3, 0)
    asked = [request for request in requests if len(request["messages"]) == 1]
    assert len(asked) == 3
    assert {request["max_tokens"] for request in requests} == {50}
    called = next(request["messages"] for request in requests if len(request["messages"]) == 3)
    assert called[2]["tool_call_id"] == called[1]["tool_calls"][0]["id"]
    for line in out.read_text().splitlines():
        (trajectory,) = json.loads(line)["trajectories"]
        (row,) = trajectory["segments"]
        assert [turn["message"]["role"] for turn in row["turns"]] == ["assistant"] * 2
        # Two answers of five tokens by the server's count: sampled, and not trained for a reason.
        assert trajectory["metrics"]["untrained_no_ids"] == 10.0


def test_a_server_that_fails_under_an_agent_is_a_failed_episode_and_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    refused = {"error": {"message": "no such model", "type": "invalid_request_error"}}
    with model_server(lambda _: (404, refused)) as (url, _):
        model = ["--policy", "openai", "--base-url", url, "--model", "tiny", "--tasks", "2"]
        assert main(["eval", "ludus/arithmetic-v0", *model, "--agent", f"{agent}:run"]) == 1
    assert "2 episodes failed" in capsys.readouterr().out


CRASHES = """
import httpx

def run(task):
    body = {"model": "any", "messages": [{"role": "user", "content": task.prompt}]}
    headers = {"Authorization": f"Bearer {task.key}"}
    httpx.post(f"{task.base_url}/chat/completions", json=body, headers=headers)
    raise RuntimeError("lost its way")
"""


def test_how_often_an_agent_crashed_stands_beside_the_reward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(CRASHES)
    with model_server(lambda _: (200, says("7"))) as (url, _):
        model = ["--policy", "openai", "--base-url", url, "--model", "tiny", "--tasks", "2"]
        assert main(["eval", "ludus/arithmetic-v0", *model, "--agent", f"{agent}:run"]) == 0
    assert "ended by agent_failed  2" in capsys.readouterr().out
