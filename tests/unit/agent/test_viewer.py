"""The page of episodes as a file: whatever a model wrote, it is text, and nothing is asked for."""

import hashlib
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import Episode, Finish, Segment, Stop, Trajectory, Turn, TurnKind, write_episodes
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer import PageHead, RunReader, page_of
from ludus.agent.viewer.columns import STATIC
from ludus.agent.viewer.page import SCRIPTS, script
from ludus.agent.viewer.tokens import pieces
from ludus.errors import ConfigError
from ludus.messages import ImagePart, Message, Role, ToolCall, assistant, tool_result, user
from ludus.verdict import Verdict

EVIL = (
    "<script>document.title='pwned'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    "</pre></details></script><!--\" onload='x' \x1b[2J\u202e\x00\u200b\u2028\r"
)


class Reader(HTMLParser):
    """Counts tags, and keeps attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs


def episode(*turns: Turn, verdict: Verdict | None = None, **more: Any) -> Episode:
    given_verdict = verdict or Verdict.of(0.5, parts={"env": (0.5, 1.0)})
    trajectory = Trajectory(verdict=given_verdict, segments=[Segment(turns=list(turns))], **more)
    return Episode(task="test/0", trajectories=[trajectory])


def evil_episode() -> Episode:
    call = ToolCall(name=EVIL, arguments={EVIL: [EVIL]}, id=EVIL, error=EVIL)
    said = Message(role=Role.ASSISTANT, content=EVIL, tool_calls=[call], reasoning=EVIL)
    turn = Turn(observation=[user(EVIL), tool_result(EVIL, call)], message=said)
    verdict = Verdict.of(0.5, EVIL, parts={EVIL: (0.5, 1.0)}, metrics={EVIL: 1.0})
    made = episode(turn, verdict=verdict, role=EVIL, gold=EVIL, metrics={EVIL: 2.0})
    return msgspec.structs.replace(made, task=EVIL, group=EVIL, split=EVIL)


def page(folder: Path, *episodes: Episode, **head: Any) -> str:
    write_episodes(folder / "e.jsonl", episodes)
    return page_of([RunReader(folder / "e.jsonl", "e", None)], PageHead(first="episodes", **head))


def shown(folder: Path, *episodes: Episode) -> list[dict[str, Any]]:
    """Return the episodes that a page holds."""
    boot = page(folder, *episodes).partition("id=boot>")[2].partition("</script>")[0]
    return list(json.loads(boot)["data"]["runs"]["e"]["episode"].values())


def test_nothing_anybody_wrote_is_markup(tmp_path: Path) -> None:
    made = page(tmp_path, evil_episode(), title=EVIL, facts={EVIL: EVIL})
    read = Reader(made)
    assert read.tags["script"] == 2  # the data, and the page's own
    assert read.tags["img"] == 0
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert EVIL[:20] not in made
    assert "\u2028" not in made.partition("id=boot>")[2]


@pytest.mark.parametrize("letter", ["a", "ж", "文", "🜚", "<"])
def test_a_page_has_no_more_bytes_than_its_limit_whatever_its_letters(
    tmp_path: Path, letter: str
) -> None:
    said = [Turn(observation=[user(letter * 3000)], message=assistant(letter * 3000))]
    write_episodes(tmp_path / "e.jsonl", [episode(*said) for _ in range(80)])
    limit = 600_000
    reader = RunReader(tmp_path / "e.jsonl", "e", None)
    made = page_of([reader], PageHead(lead=letter * 9000), limit=limit)
    assert limit * 0.9 < len(made.encode()) <= limit


def test_the_page_may_ask_nobody_for_anything(tmp_path: Path) -> None:
    made = page(tmp_path, episode())
    policy = re.search(r'Content-Security-Policy content="([^"]*)"', made)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy[1]
    # Addresses in the scripts name a project in a comment and SVG's namespace, and ask nobody.
    assert set(re.findall(r"https?://[\w./]+", made)) == {
        "https://github.com/leeoniya/uPlot",
        "http://www.w3.org/2000/svg",
    }


def test_no_script_makes_markup_of_text() -> None:
    own = "".join(path.read_text() for path in STATIC.glob("*.js"))
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert way not in own


def test_the_vendored_library_is_as_released() -> None:
    """uPlot 1.6.32 from the npm registry: sha256 of the archive 4b8a8191e425658e...0b5133d."""
    folder = STATIC / "vendor" / "uplot-1.6.32"
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
    }
    assert digests == {
        "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    }
    assert (folder / "uPlot.iife.min.js").read_text() in script()


def test_masks_and_windows_are_kept_span_by_span(tmp_path: Path) -> None:
    first = Turn(obs_ids=[], out_ids=[1, 2], logprobs=[-0.5, -1.5], versions=[3, 4])
    first.message = assistant("look", [ToolCall(name="search", arguments={"q": "x"})])
    dropped = Turn(obs_ids=[9], out_ids=[9], logprobs=[0.0], versions=[4], message=assistant("d"))
    written = Turn(kind=TurnKind.SUMMARY, obs_ids=[7] * 3, out_ids=[8] * 4)
    written.message = assistant("so far")
    unread = Turn(out_ids=[1] * 5, trained=False, message=assistant("masked"))
    segments = [
        Segment(prompt_ids=[0] * 6, turns=[first, written], break_reason="summary"),
        Segment(prompt_ids=[0] * 10, turns=[unread], parent=0, cause="fork"),
    ]
    segments[0].discarded = [dropped]
    made = Trajectory(verdict=Verdict.of(0.0), segments=segments)
    (told,) = shown(tmp_path, Episode(task="t", trajectories=[made]))
    windows = told["trajectories"][0]["windows"]
    spans = [(span["kind"], len(span["ids"])) for window in windows for span in window["spans"]]
    assert spans == [
        ("shown", 6),
        ("trained", 2),
        ("shown", 3),
        ("summary", 4),
        ("shown", 10),
        ("untrained", 5),
    ]
    assert [window["ended"] for window in windows] == ["summary", ""]
    assert (windows[1]["parent"], windows[1]["cause"]) == (0, "fork")
    turn = windows[0]["turns"][0]
    assert (turn["logp"], turn["versions"]) == (-1.0, [3, 4])
    assert len(windows[0]["discarded"]) == 1


def test_an_episode_that_is_left_out_of_the_loss_is_shown_masked(tmp_path: Path) -> None:
    turn = Turn(out_ids=[1, 2], message=assistant("x"))
    lost = episode(turn, verdict=Verdict.unavailable("away"), exclude_from_loss=True)
    (told,) = shown(tmp_path, lost)
    (window,) = told["trajectories"][0]["windows"]
    assert [span["kind"] for span in window["spans"]] == ["untrained"]
    assert told["row"]["reward"] is None


def test_images_at_an_address_are_named_and_never_fetched(tmp_path: Path) -> None:
    images = [ImagePart(url="ftp://127.0.0.1:9/x.png"), ImagePart(data=b"\xff\xd8\xff0")]
    (told,) = shown(tmp_path, episode(Turn(observation=[user(list(images))])))
    (message,) = told["trajectories"][0]["windows"][0]["turns"][0]["observation"]
    assert message["images"] == [
        {"named": "ftp://127.0.0.1:9/x.png"},
        {"data": "data:image/jpeg;base64,/9j/MA=="},
    ]


def test_tokens_of_one_character_are_shown_together() -> None:
    parts = [b"a", "é".encode()[:1], "é".encode()[1:], b"\xff"]

    def decode(ids: Any) -> str:
        return b"".join(parts[i] for i in ids).decode("utf-8", "replace")

    assert pieces([0, 1, 2, 3], decode) == [("a", 1), ("é", 2), ("\ufffd", 1)]


def test_a_page_holds_what_fits_and_says_what_it_left_out(tmp_path: Path) -> None:
    long = [episode(Turn(message=assistant("word " * 20_000))) for _ in range(80)]
    made = page(tmp_path, *long)
    assert len(made.encode()) < 5_000_000
    boot = json.loads(made.partition("id=boot>")[2].partition("</script>")[0])
    assert 20 < len(boot["data"]["runs"]["e"]["episode"]) < 80
    assert "of 80 listed episodes can be opened" in boot["left_out"][0]


def test_a_file_that_was_cut_while_it_was_written_is_read_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    line = msgspec.json.encode(episode(Turn(message=assistant("4"), finish=Finish.LENGTH)))
    file.write_bytes(line + b"\n\n" + line + b"\n" + line[:20])
    assert len(read_episodes(file)) == 2
    assert len(read_episodes(file, max_episodes=1)) == 1


def test_a_line_that_is_no_episode_is_named(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text('{"task": 3}\n')
    with pytest.raises(ConfigError, match="line 1 is not an episode"):
        read_episodes(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_episodes(tmp_path / "none.jsonl")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def dumped(file: Path, route: str) -> str:
    """Return the document that a browser makes of a file."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=4000", f"{file.as_uri()}#/{route}"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_opens_the_page_from_the_file_and_nothing_in_it_acts(tmp_path: Path) -> None:
    lost = episode(verdict=Verdict.unavailable("away"), stop=Stop.ENV_ERROR)
    file = tmp_path / "page.html"
    file.write_text(page(tmp_path, evil_episode(), lost, title="quiet"), encoding="utf-8")
    table = dumped(file, "episodes")
    assert "<title>Episodes" in table
    assert "2 of 2 episodes" in table  # its own script ran
    assert "<mark>\\u202e</mark>" in table
    opened = dumped(file, "episode?id=1")
    assert "<title>Episode" in opened
    assert "<mark>\\x1b</mark>[2J" in opened
    assert opened.count("<script") == 2
    assert "&lt;script&gt;" in opened


AXES = """
const drawn = [], write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const upright = this.textAlign === 'right';
  drawn.push([upright, text, upright ? x - this.measureText(text).width : x]);
  write.call(this, text, x, y);
};
const host = document.body.appendChild(document.createElement('div')), seen = [];
(async () => {
  for (const [low, high, log] of RANGES) {
    const line = {name: 'a', column: 'a', x: [1, 2, 3], y: [low, (low + high) / 2, high]};
    const remove = chart(host, [line], {log});
    await Promise.resolve().then(() => null);
    seen.push(drawn.splice(0));
    remove();
  }
  document.body.replaceChildren(el('pre', {}, JSON.stringify(seen)));
})();
"""
"""Draws charts and replaces them by what was written on them: text and left edge."""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_neighbours_on_an_axis_differ_and_no_label_is_cut_off(tmp_path: Path) -> None:
    draw = random.Random(0)
    ranges: list[tuple[float, float, bool]] = [(0.6929, 0.69315, False), (1e-7, 3e-3, True)]
    for _ in range(60):
        low = draw.choice([-1, 0, 1]) * 10 ** draw.uniform(-9, 12)
        ranges.append((low, low + (abs(low) or 1) * 10 ** draw.uniform(-6, 3), False))
    file = tmp_path / "axes.html"
    parts = [
        *((STATIC / name).read_text("utf-8") for name in (*SCRIPTS[:2], "charts.js")),
        AXES.replace("RANGES", json.dumps(ranges)),
    ]
    file.write_text(f"<body><script>{''.join(parts)}</script></body>", encoding="utf-8")
    found = re.search(r"<pre>(.*?)</pre>", dumped(file, ""), re.DOTALL)
    assert found is not None
    for limits, texts in zip(ranges, json.loads(found[1]), strict=True):
        labels = [text for upright, text, _ in texts if upright and text]
        assert len(labels) > 1, limits
        assert len(set(labels)) == len(labels), (limits, labels)
        assert all(left >= 0 for upright, _, left in texts if upright), (limits, labels)
        lowest, highest = (float(labels[place].replace(",", "")) for place in (0, -1))
        assert lowest < highest, (limits, labels)
