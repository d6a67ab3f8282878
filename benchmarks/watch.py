"""The page of runs in headless Chromium: pictures of every page, and what it takes.

    pip install playwright; apt-get install chromium
    python benchmarks/watch.py shots RUN... --out pictures/     pictures of every page
    python benchmarks/watch.py large                            20,000 episodes, and 10 runs of 2,000 steps

Not a part of CI: a browser is needed. `large` writes 0.5 GB to a temporary folder and removes it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAGES = (
    "runs", "overview", "metrics", "timeline", "steps", "tasks", "episodes", "accounts",
    "settings", "compare",
)  # fmt: skip
CHROMIUM = shutil.which("chromium") or "chromium"


@contextmanager
def watched(*places: str) -> Generator[tuple[str, int]]:
    """Run `ludus watch` on a free port; yields the address and the process id."""
    command = [sys.executable, "-m", "ludus", "watch", *places, "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def browser(*, dark: bool = False, width: int = 1400, height: int = 900) -> Generator[Any]:
    """Open a page of headless Chromium that keeps what goes wrong in `problems`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page.problems = []
        page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        try:
            yield page
        finally:
            chromium.close()


def shots(runs: list[str], out: Path, *, dark: bool) -> int:
    """Take a picture of every page; returns the number of problems."""
    out.mkdir(parents=True, exist_ok=True)
    with watched(*runs) as (address, _), browser(dark=dark) as page:
        page.goto(address)
        page.wait_for_selector("main h2")
        for name in PAGES:
            page.goto(f"{address}#/{name}")
            page.wait_for_timeout(900)
            page.screenshot(path=str(out / f"{name}.png"))
        page.goto(f"{address}#/episodes?split=train")
        page.wait_for_selector(".rows .row")
        page.click(".rows .row >> nth=3")
        page.wait_for_selector("article.episode")
        page.click("details summary:has-text('tokens')")
        page.wait_for_timeout(500)
        page.screenshot(path=str(out / "episode.png"))
        side = page.query_selector("a:has-text('side by side')")
        if side:
            side.click()
            page.wait_for_timeout(600)
            page.screenshot(path=str(out / "side.png"))
        outside = [url for url in page.requests if not url.startswith((address, "data:"))]
        print(f"{len(PAGES) + 2} pictures in {out}; problems: {page.problems}; outside: {outside}")
        return len(page.problems) + len(outside)


# --- large runs -----------------------------------------------------------------------------------


def write_run(folder: Path, *, steps: int, episodes: int, seed: int, tokens: int = 78) -> None:
    """Write a run like those of `ludus train`: 79 columns, and episodes of ten turns."""
    draw = random.Random(seed)
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'env = "ludus/arithmetic-v0"\nrecipe = "{["grpo", "rloo"][seed % 2]}"\nsteps = {steps}\n'
        f"seed = {seed}\n[rollout]\ngroup_size = 8\n"
    )
    names = [f"update/n{number}" for number in range(70)]
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            reward = 1 - math.exp(-step / steps * 3) + draw.gauss(0, 0.03)
            row = {"step": step, "time": 1.7e9 + 10 * step, "reward/mean": reward}
            row |= {"kind/act_entropy": math.exp(-step / steps), "episode/tokens": 300 + step / 10}
            row |= {"time/generate_s": 6.0, "time/update_s": 3.0, "group/equal": draw.random()}
            row |= {name: draw.gauss(0, 1) for name in names}
            file.write(json.dumps(row) + "\n")
    index, groups = (folder / "episodes" / "index.jsonl").open("w"), 8
    for first in range(0, episodes, 200):
        name, offset = f"step-{first // 200 + 1:06d}.jsonl", 0
        with (folder / "episodes" / name).open("w") as file:
            for number in range(first, min(first + 200, episodes)):
                line = json.dumps(_episode(number, draw, tokens, groups)) + "\n"
                file.write(line)
                reward = float(number % 3 == 0)
                about = {
                    "file": name, "offset": offset, "bytes": len(line), "step": first // 200 + 1,
                    "task": f"train/{number // groups}", "group": f"g{number // groups}",
                    "index": number % groups, "ordinal": number, "reward": reward, "turns": 10,
                    "stop": "terminated" if number % 5 else "max_turns", "tokens": 10 * tokens,
                    "windows": 1, "parts": {"correct": reward}, "text": f"the answer is {number}",
                }  # fmt: skip
                index.write(json.dumps(about) + "\n")
                offset += len(line)
    index.close()


def _episode(number: int, draw: random.Random, tokens: int, groups: int) -> dict[str, Any]:
    turns = [
        {
            "obs_ids": [draw.randrange(50000) for _ in range(40)],
            "out_ids": [draw.randrange(50000) for _ in range(tokens)],
            "logprobs": [round(-draw.expovariate(2), 8) for _ in range(tokens)],
            "versions": [number // 200] * tokens,
            "observation": [{"role": "user", "content": f"look again at {turn}"}],
            "message": {
                "role": "assistant",
                "content": f"step {turn}: the answer is {number} " * 8,
            },
        }
        for turn in range(10)
    ]
    reward = float(number % 3 == 0)
    return {
        "task": f"train/{number // groups}", "group": f"g{number // groups}", "index": number % groups,
        "ordinal": number,
        "trajectories": [{"verdict": {"status": "ok", "reward": reward}, "segments": [{"prompt_ids": list(range(60)), "turns": turns}]}],
    }  # fmt: skip


OBSERVE = """window.longest = []; new PerformanceObserver(list => { for (const entry of list.getEntries())
window.longest.push([Math.round(entry.duration), location.hash]); }).observe({type: 'longtask', buffered: true});"""


class Costs:
    """CPU seconds of the page's main thread and of the server."""

    def __init__(self, page: Any, pid: int) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.pid = pid

    def __call__(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        page_s = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return float(page_s) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measured(page: Any, costs: Costs, what: str, act: str, until: str) -> tuple[float, float]:
    """Return the milliseconds from an action until a condition holds in a drawn frame: by the
    clock, and of CPU time in page and server.
    """
    script = f"""async () => {{ const begun = performance.now(); {act};
    while (!({until})) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame); return performance.now() - begun; }}"""
    before = costs()
    taken, spent = float(page.evaluate(script)), 1e3 * (costs() - before)
    page.wait_for_timeout(300)
    print(f"  {what:<44} {taken:7.0f} ms by the clock, {spent:5.0f} ms of CPU")
    return taken, spent


def held_by(costs: Costs) -> dict[str, float]:
    """Return what a page holds after a collection of garbage."""
    costs.session.send("HeapProfiler.collectGarbage")
    metrics = costs.session.send("Performance.getMetrics")["metrics"]
    wanted = ("JSHeapUsedSize", "Nodes", "JSEventListeners")
    return {metric["name"]: metric["value"] for metric in metrics if metric["name"] in wanted}


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def large() -> int:
    """Measure a run of 20,000 episodes, and ten runs of 2,000 steps; returns failed budgets."""
    root = Path(tempfile.mkdtemp(prefix="watch-"))
    failed: list[str] = []

    def held(name: str, value: float, bound: float) -> None:
        print(f"{'held  ' if value < bound else 'FAILED'} {name}: {value:.0f} < {bound:.0f}")
        if value >= bound:
            failed.append(name)

    try:
        write_run(root / "many", steps=200, episodes=20_000, seed=0)
        size = sum(path.stat().st_size for path in (root / "many").rglob("*.jsonl"))
        print(f"20,000 episodes, {size / 1e6:.0f} MB")
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        with watched(str(root / "many")) as (address, pid), browser() as page:
            page.add_init_script(OBSERVE)
            for heat in ("cold", "warm"):
                begun = time.perf_counter()
                page.goto(address)
                page.wait_for_selector("main h2")
                held(f"first content, {heat}, ms", 1e3 * (time.perf_counter() - begun), 1000)
            page.goto(f"{address}#/episodes")
            page.wait_for_selector(".rows .row")
            page.evaluate(
                "window.rowText = () => document.querySelector('.rows')?.textContent || ''"
            )
            count = "document.querySelector('.tools .dim')?.textContent"
            costs, rounds = Costs(page, pid), list[list[tuple[float, float]]]()
            actions = (
                ("scroll to the end", "document.querySelector('.view').scrollTop = 1e9", "rowText().includes('the answer is 19999')"),
                ("scroll to the middle", "document.querySelector('.view').scrollTop = 280000", "rowText().includes('the answer is 10004')"),
                ("sort by reward", "[...document.querySelectorAll('.row.head button')].find(b => b.textContent.startsWith('reward')).click()", "rowText().includes('● 1')"),
                ("next rows by key", "document.querySelector('.view').dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))", "document.querySelector('.row.at')"),
                ("open an episode", "document.querySelector('.rows .row').click()", "document.querySelector('article.episode')"),
                ("its tokens", "[...document.querySelectorAll('summary')].find(s => s.textContent.startsWith('tokens')).click()", "document.querySelectorAll('.tokens span').length > 900"),
                ("back to the table", "location.hash = '#/episodes'", "document.querySelector('.rows .row')"),
            )  # fmt: skip
            for _ in range(5):
                rounds.append([_measured(page, costs, *action) for action in actions])
                page.click("text=no filter")
                page.wait_for_timeout(300)
            # Of five rounds the median: others compute on this machine too.
            medians = [
                [
                    statistics.median(measured[place][kind] for measured in rounds)
                    for place in range(len(actions))
                ]
                for kind in (0, 1)
            ]
            print(f"  medians by the clock: {[round(value) for value in medians[0]]}")
            held("slowest interaction, CPU ms", max(medians[1]), 100)
            held("slowest interaction by the clock, ms", max(medians[0]), 100)
            held_before, held_after = dict[str, float](), dict[str, float]()
            for number in range(250):
                page.evaluate(f"location.hash = '#/{PAGES[number % len(PAGES)]}'")
                page.wait_for_timeout(40)
                if number in (49, 249):  # the first round makes what the browser keeps for good
                    page.goto(f"{address}#/episodes")
                    page.wait_for_selector(".rows .row")
                    page.wait_for_timeout(1500)
                    held_before, held_after = held_after, held_by(costs)
            grown = {
                name: round(value / held_before[name], 2) for name, value in held_after.items()
            }
            print(f"  after 200 pages, times as many: {grown}")
            held("growth of the heap, per cent", 100 * grown["JSHeapUsedSize"], 150)
            page.fill("input[placeholder='text in the episode']", "the answer is 1234 ")
            _measured(
                page, costs, "text in 460 MB (no budget)", "", f"({count} || '').startsWith('1 of')"
            )
            held("server, MB", _rss_mb(pid), 150)
            print(f"  problems: {page.problems}")
        for seed in range(10):
            write_run(root / "ten" / f"run{seed}", steps=2000, episodes=0, seed=seed)
        with watched(str(root / "ten")) as (address, pid), browser() as page:
            page.add_init_script(OBSERVE)
            page.context.browser.start_tracing(
                page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"]
            )
            page.goto(f"{address}#/metrics")
            page.wait_for_selector(".u-over")
            for place in range(0, 12000, 400):
                page.evaluate(f"document.querySelector('main').scrollTop = {place}")
                page.wait_for_timeout(120)
            page.goto(f"{address}#/overview")
            page.wait_for_timeout(1500)
            longest = page.evaluate("window.longest")
            print(
                f"  long tasks: {longest}; charts drawn: {page.evaluate('performance.now()'):.0f} ms"
            )
            traced = json.loads(page.context.browser.stop_tracing())["traceEvents"]
            tasks = [
                event for event in traced if event["name"].endswith("RunTask") and "tdur" in event
            ]
            names = {
                event["tid"]: event["args"]["name"]
                for event in traced
                if event["name"] == "thread_name"
            }
            main_thread = [
                event["tdur"] / 1e3
                for event in tasks
                if names.get(event["tid"]) == "CrRendererMain"
            ]
            # The browser's own figure is wall-clock, which a busy machine stretches; this is CPU time.
            print(
                f"  tasks of the page: {len(main_thread)}, longest CPU ms {sorted(main_thread)[-5:]}"
            )
            held("longest task, CPU ms", max(main_thread, default=0), 100)
            print(
                f"  longest task by PerformanceObserver: {max((task[0] for task in longest), default=0)} ms"
            )
            held("server of ten runs, MB", _rss_mb(pid), 150)
        out = root / "report.html"
        subprocess.run(
            [sys.executable, "-m", "ludus", "watch", str(root / "many"), "--out", str(out)],
            check=True,
        )
        held("report, kB", out.stat().st_size / 1e3, 5000)
    finally:
        shutil.rmtree(root)
    return len(failed)


def main() -> int:
    """Run a mode; returns 0 if everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["shots", "large"])
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--out", default="pictures")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    if options.mode == "large":
        return min(1, large())
    return min(1, shots(options.runs, Path(options.out), dark=options.dark))


if __name__ == "__main__":
    sys.exit(main())
