"""The page of `ludus label` in a real browser, by keyboard alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.labelling.journal import LabelJournal

sync_api: Any = pytest.importorskip(
    "playwright.sync_api", reason="pip install playwright, and a Chromium of the system"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
ITEMS = 500


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def wait_done(page: Any, count: int) -> None:
    """Wait until the page says that so many items are labelled; its policy allows no script of
    ours.
    """
    page.wait_for_selector(f'body[data-done="{count}"]', state="attached", timeout=60_000)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def start(source: str, out: Path, port: int, *more: str) -> tuple[subprocess.Popen[str], str]:
    """Start the server, and return it with the first person's address."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ludus",
            "label",
            source,
            "--out",
            str(out),
            "--port",
            str(port),
            *more,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = re.search(r"http\S+", process.stdout.readline())
    assert address is not None
    return process, address[0]


def stop(process: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> None:
    process.send_signal(how)
    process.wait(timeout=30)
    assert process.stdout is not None
    process.stdout.close()


def test_five_hundred_items_by_keyboard_and_a_server_that_is_killed(
    browser: Any, tmp_path: Path
) -> None:
    rows = [
        {"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(ITEMS)
    ]
    source, out, port = lines(tmp_path / "a.jsonl", rows), tmp_path / "labels.jsonl", free_port()
    server, address = start(source, out, port, "--annotators", "ann")
    page = browser.new_page()
    foreign: list[str] = []
    faults: list[str] = []
    page.on(
        "request",
        lambda request: foreign.append(request.url) if str(port) not in request.url else None,
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda said: faults.append(said.text) if "Content Security" in said.text else None,
    )
    try:
        page.goto(address)
        page.wait_for_selector("article")
        for number in range(ITEMS):
            wait_done(page, number)
            first = page.locator("article .message").first.inner_text()
            page.keyboard.press("1" if first.startswith("good") else "2")
            if number in (100, 300):  # in the middle of a request, or just behind it
                stop(server)
                kept = len(LabelJournal(out).rows)
                assert kept in (number, number + 1)
                server, _ = start(source, out, port, "--annotators", "ann")
        wait_done(page, ITEMS)
        assert "Nothing is left" in page.locator("#prompt").inner_text()
        page.keyboard.press("u")
        wait_done(page, ITEMS - 1)
    finally:
        stop(server)
        page.close()
    labels = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(labels) == ITEMS - 1
    assert all(row["chosen"][0]["content"].startswith("good") for row in labels)
    assert foreign == faults == []


def test_a_key_that_bounces_labels_one_item(browser: Any, tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}", "chosen": "a", "rejected": f"b{n}"} for n in range(3)]
    source, out, port = lines(tmp_path / "a.jsonl", rows), tmp_path / "labels.jsonl", free_port()
    server, address = start(source, out, port)
    page = browser.new_page()
    try:
        page.goto(address)
        for key, counts in (("1", [1, 2]), ("u", [1, 0])):
            for count in counts:
                wait_done(page, {"1": count - 1, "u": count + 1}[key])
                item = page.locator("body").get_attribute("data-item")
                page.keyboard.press(key)
                page.wait_for_selector(f'body:not([data-item="{item}"])', state="attached")
                page.keyboard.press(key)  # the next item is on the page, and unread
                wait_done(page, count)
                assert len(LabelJournal(out).rows) == count
    finally:
        stop(server)
        page.close()


def test_rankings_ratings_criteria_and_images_are_shown(browser: Any, tmp_path: Path) -> None:
    png = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
        "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    hostile = "<img src=x onerror=alert(1)><script>document.title='x'</script>"
    cases: list[tuple[str, list[Any], list[str]]] = [
        (
            "ranking",
            [{"prompt": "q", "answers": ["a", "b", "c"]}],
            ["2", "1", "Backspace", "3", "1", "Enter"],
        ),
        ("rating", [{"prompt": hostile, "answer": hostile}], ["4"]),
        ("criterion", [{"question": "q", "response": "a", "criterion": "is short"}], ["y"]),
        ("pair", [{"prompt": "q", "answers": [{"image": png}, "text"]}], ["3"]),
    ]
    for name, rows, presses in cases:
        out, port = tmp_path / f"{name}.labels.jsonl", free_port()
        source = lines(tmp_path / f"{name}.jsonl", rows)
        guide = tmp_path / "guide.txt"
        guide.write_text("Prefer the answer that is true.")
        server, address = start(source, out, port, "--guidelines", str(guide))
        page = browser.new_page()
        try:
            page.goto(address)
            page.wait_for_selector("article")
            assert "Prefer the answer" in page.locator("#guidelines").inner_text()
            if name == "pair":
                assert page.locator("article img").count() == 1
            if name == "rating":
                assert page.locator("article .message").inner_text() == hostile
                assert page.title() == "ludus label"
            if folder := os.environ.get("LUDUS_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/label-{name}.png")
            order = [box.inner_text() for box in page.locator("article .message").all()]
            for key in presses:
                page.keyboard.press(key)
            wait_done(page, 1)
        finally:
            stop(server)
            page.close()
        (row,) = [json.loads(line) for line in out.read_text().splitlines()]
        if name == "ranking":
            ranked = sorted(zip(row["label"], "abc", strict=True))
            assert [text for _, text in ranked] == [order[1], order[2], order[0]]
        if name == "rating":
            assert row["rating"] == 4
        if name == "criterion":
            assert row["met"] is True
        if name == "pair":
            assert row["preference"] == "tie"


def test_trajectories_are_shown_as_in_the_viewer_and_nothing_says_whose_they_are(
    browser: Any, tmp_path: Path
) -> None:
    out, port = tmp_path / "labels.jsonl", free_port()
    more = ("--tasks", "2", "--policy", "expert", "random", "--samples", "1")
    server, address = start("ludus/arithmetic-v0?min_operations=2", out, port, *more)
    page = browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda said: faults.append(said.text) if "Content Security" in said.text else None,
    )
    try:
        page.goto(address)
        for number in range(2):
            wait_done(page, number)
            page.wait_for_selector(".answer")
            boxes = page.locator(".answer").all()
            calls = [box.locator(".call").count() for box in boxes]
            assert sorted(calls)[0] == 0 < sorted(calls)[1]
            expert = boxes[calls.index(max(calls))]
            assert expert.locator("article.message.seen").count() == max(calls)  # results
            told = page.locator("main").inner_text().lower()
            assert not {"expert", "random", "reward"} & set(re.findall(r"\w+", told))
            if folder := os.environ.get("LUDUS_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/label-trajectory.png")
            page.keyboard.press(str(1 + calls.index(max(calls))))
        wait_done(page, 2)
    finally:
        stop(server)
        page.close()
    assert faults == []
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(row["chosen"][0]["tool_calls"] for row in rows)
    assert not any(row["rejected"][0].get("tool_calls") for row in rows)
