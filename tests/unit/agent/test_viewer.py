"""The page of episodes: whatever a model wrote, it is text."""

import re
import shutil
import subprocess
import unicodedata
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent import Episode, Finish, Segment, Stop, Trajectory, Turn, TurnKind
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer import PageHead, page_of
from ludus.agent.viewer.page import MAX_CHARS, markup
from ludus.agent.viewer.tokens import token_row
from ludus.errors import ConfigError
from ludus.messages import ImagePart, Message, Role, ToolCall, assistant, tool_result, user
from ludus.verdict import Verdict

EVIL = (
    "<script>document.title='pwned'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    "</pre></details></script>\" onload='x' \x1b[2J\u202e\x00\u200b\ud800\r"
)


class Reader(HTMLParser):
    """Counts tags, and keeps the text a browser would show."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


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


def test_nothing_anybody_wrote_is_markup() -> None:
    harmless = msgspec.json.decode(
        msgspec.json.encode(episode(Turn(observation=[user("a")], message=assistant("b")))),
        type=Episode,
    )
    page = page_of([evil_episode(), harmless], PageHead(title=EVIL, facts={EVIL: EVIL}))
    read = Reader(page)
    assert read.tags["script"] == 1
    assert read.tags["img"] == 0
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert page.encode()  # nothing in it that UTF-8 cannot hold


def test_the_page_may_ask_nobody_for_anything() -> None:
    page = page_of([], PageHead(title="x"))
    policy = re.search(r'Content-Security-Policy content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy[1]
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\tb 数 ✓", "a\n\tb 数 ✓"),
        ("\x1b[31m", "<mark>\\x1b</mark>[31m"),
        ("a\rb\x00\x9b", "a<mark>\\r</mark>b<mark>\\x00</mark><mark>\\x9b</mark>"),
        ("\u202ex\u2066", "<mark>\\u202e</mark>x<mark>\\u2066</mark>"),
        ("a\u200bb\ufeff", "a<mark>\\u200b</mark>b<mark>\\ufeff</mark>"),
        ("\U000e0041\udcff", "<mark>\\U000e0041</mark><mark>\\udcff</mark>"),
        ("<&\"'", "&lt;&amp;&quot;&#x27;"),
    ],
)
def test_what_is_not_seen_is_written_out(text: str, shown: str) -> None:
    assert markup(text) == shown


def test_ten_megabytes_are_shown_from_both_ends() -> None:
    shown = markup("a" * 10_000_000 + "z")
    assert shown.endswith("aaz")
    assert f"[... {10_000_001 - MAX_CHARS:,} characters are not shown ...]" in shown
    assert len(shown) < MAX_CHARS + 100


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_control_character_of_any_text_is_left(text: str) -> None:
    seen = Reader(f"<p>{markup(text)}</p>").text
    assert not [c for c in seen if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert all(c in seen for c in text if c.isalpha() and unicodedata.category(c) == "Ll")


def test_masks_and_windows_are_shown_span_by_span() -> None:
    first = Turn(obs_ids=[], out_ids=[1, 2], logprobs=[-0.5, -1.5], versions=[3, 4])
    first.message = assistant("look", [ToolCall(name="search", arguments={"q": "x"})])
    dropped = Turn(obs_ids=[9], out_ids=[9], logprobs=[0.0], versions=[4], message=assistant("d"))
    written = Turn(kind=TurnKind.SUMMARY, obs_ids=[7] * 3, out_ids=[8] * 4)
    written.message = assistant("so far")
    unread = Turn(out_ids=[1] * 5, trained=False, message=assistant("masked"))
    segments = [
        Segment(prompt_ids=[0] * 6, turns=[first, written], break_reason="summary"),
        Segment(prompt_ids=[0] * 10, turns=[unread]),
    ]
    segments[0].discarded = [dropped]
    made = Trajectory(verdict=Verdict.of(0.0), segments=segments)
    page = page_of([Episode(task="t", trajectories=[made])], PageHead(title="t"))
    titles = re.findall(r"<rect class=(\w+) [^>]*><title>[^:]*: (\d+) tokens from (\d+)", page)
    assert [one for one in titles if one[1] != "0"] == [
        ("shown", "6", "0"),
        ("trained", "2", "6"),
        ("shown", "3", "8"),
        ("summary", "4", "11"),
        ("shown", "10", "0"),
        ("untrained", "5", "10"),
    ]
    text = Reader(page).text
    assert "window 1 of 2 · 15 tokens · opens with 6 · ended by summary" in text
    assert "mean logprob -1.000" in text
    assert "versions 3 to 4" in text
    assert "left this window before its summary" in text


def test_an_episode_that_is_left_out_of_the_loss_is_shown_masked() -> None:
    turn = Turn(out_ids=[1, 2], message=assistant("x"))
    lost = episode(turn, verdict=Verdict.unavailable("away"), exclude_from_loss=True)
    page = page_of([lost], PageHead(title="t"))
    assert "class=trained x" not in page
    assert "<rect class=untrained" in page
    assert "episode lost" in page


def test_a_chat_is_shown_as_what_cannot_be_trained() -> None:
    page = page_of([episode(Turn(message=assistant("4")))], PageHead(title="t"))
    assert "no token ids: not trainable" in page
    assert '<article class="untrained assistant">' in page


def test_rewards_by_part_are_a_table() -> None:
    verdict = Verdict.of(0.8, parts={"answer": (1.0, 0.75), "format": (0.2, 0.25)})
    page = page_of([episode(Turn(message=assistant("4")), verdict=verdict)], PageHead(title="t"))
    assert "<tr><td>answer<td>1<td>0.75<td>0.75<tr><td>format<td>0.2<td>0.25<td>0.05" in page


def test_images_at_an_address_are_named_and_never_fetched() -> None:
    images = [ImagePart(url="http://127.0.0.1:9/x.png"), ImagePart(data=b"\xff\xd8\xff0")]
    page = page_of([episode(Turn(observation=[user(list(images))]))], PageHead(title="t"))
    assert re.findall(r'<img [^>]*src="([^"]*)"', page) == ["data:image/jpeg;base64,/9j/MA=="]
    assert "image at http://127.0.0.1:9/x.png" in page


def test_tokens_of_one_character_are_shown_together() -> None:
    pieces = [b"a", "é".encode()[:1], "é".encode()[1:], b"\xff"]

    def decode(ids: Any) -> str:
        return b"".join(pieces[i] for i in ids).decode("utf-8", "replace")

    turn = Turn(out_ids=[0, 1, 2, 3], logprobs=[-1.0, -2.0, -3.0, -4.0], versions=[5] * 4)
    row = token_row(Segment(turns=[turn]), decode, excluded=False)
    spans = [(piece.title, piece.text) for piece in row if piece.kind == "trained"]
    assert spans == [
        ("id 0, logprob -1.0000, version 5", "a"),
        ("id 1, logprob -2.0000, version 5; id 2, logprob -3.0000, version 5", "é"),
        ("id 3, logprob -4.0000, version 5", "\ufffd"),
    ]


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


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_opens_the_page_from_the_file_and_nothing_in_it_acts(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    lost = episode(verdict=Verdict.unavailable("away"), stop=Stop.ENV_ERROR)
    page = tmp_path / "page.html"
    page.write_text(page_of([evil_episode(), lost], PageHead(title="quiet")), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    made = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    assert "<title>quiet</title>" in made.stdout
    assert '<span id="left">2 of 2</span>' in made.stdout  # its own script ran
    assert made.stdout.count("<script") == 1
