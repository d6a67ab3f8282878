"""docs/your_own.md, run as written."""

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import ludus
from ludus.envs.checks.rules import RULES
from ludus.rewards.score import close_verifier, score_sample

PAGE = (Path(__file__).parents[2] / "docs" / "your_own.md").read_text()
FILES = dict(re.findall(r"^```(?:python|toml|json) (\w+\.\w+)\n(.*?)^```", PAGE, re.M | re.S))
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
    for line in block.splitlines()
]
EXPECTED = {
    " check ": "0 failed",
    "--policy expert": "1.000",
    "--policy random": "of 4 tasks",
    " score ": "reward 1",
    " recipes show ": "0.02",
    " sft ": "step-000003",
    " train ": "report.html",
    " view ": "view.html",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_run_as_written(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    servers = [
        subprocess.Popen(shlex.split(line.removesuffix("&")), cwd=tmp_path, env=env)
        for line in COMMANDS
        if line.endswith("&")
    ]
    try:
        for line in COMMANDS:
            if line.endswith("&"):
                continue
            done = subprocess.run(
                line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            (wanted,) = [said for part, said in EXPECTED.items() if part in line]
            assert wanted in done.stdout, f"{line}\n{done.stdout}"
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    assert (tmp_path / "codes.html").stat().st_size > 1000


def module_of(name: str, folder: Path) -> ModuleType:
    """Import a file of the page from a folder."""
    file = folder / name
    file.write_text(FILES[name])
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def a_model_that_says(answer: str) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": answer}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_the_loss_with_a_formula_of_its_own(tmp_path: Path) -> None:
    module = module_of("quadratic.py", tmp_path)
    logp, old_logp = torch.tensor([[0.6, 0.1, 0.9]]).log(), torch.tensor([[0.4, 0.4, 0.1]]).log()
    advantages, mask = torch.tensor([[1.0, -1.0, 5.0]]), torch.tensor([[1, 1, 0]])
    total, weight = module.quadratic_loss(logp, old_logp, advantages, mask)
    # Ratios 1.5 and 0.25: (0.5 ** 2 / 0.4 - 1.5) + (0.75 ** 2 / 0.4 + 0.25).
    assert total.item() == pytest.approx(-0.875 + 1.65625)
    assert weight.item() == 2


@pytest.mark.parametrize(("answer", "reward"), [("Yes, it does.", 1.0), ("no", 0.0)])
def test_the_judge_asks_its_model(answer: str, reward: float, tmp_path: Path) -> None:
    module_of("judge.py", tmp_path)
    with a_model_that_says(answer) as url:
        judge = ludus.make_verifier("me/judge", base_url=url, model="tiny")
        try:
            assert ludus.check_verifier(judge).ok
            sample = ludus.Sample(response="It is four.", gold="4")
            assert score_sample(judge, sample).reward == reward
        finally:
            close_verifier(judge)


def test_the_table_of_rules_names_each() -> None:
    table = PAGE.partition("## What `check` finds")[2].partition("## ")[0]
    named = [name for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in row.split(", ")]
    assert named == ["rule", *(rule for rule, _ in RULES)]


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / target).exists(), target
