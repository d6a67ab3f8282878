"""`ludus score FILE`: a verdict a row, gone on with where it was left, here or on a server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import main
from ludus.envs.serving.connect import connect
from ludus.errors import ConfigError
from ludus.rewards.rows import VerdictFile, read_rows
from ludus.rewards.serving.reward_wire import MAX_BATCH
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer

ROWS = [
    {"gold": "1/2", "response": "\\boxed{0.5}", "verifier": "maths", "id": "half", "label": True},
    {"gold": "salve", "prediction": "Salve ", "label": True},
    {"gold": "vale", "response": "salve", "verifier": "exact", "label": False},
    {"gold": "", "response": "\\boxed{1}", "verifier": "maths"},
]
judged: list[str] = []


@ludus.verifier("score-rows/seen")
def seen(sample: ludus.Sample) -> bool:
    """Right if the response is the gold; keeps what it was given."""
    judged.append(sample.text)
    return sample.text == sample.gold


@ludus.verifier("score-rows/raises")
def raises(sample: ludus.Sample) -> bool:
    """Raise for the answer b."""
    return {"a": True, "c": False}[sample.text]


@ludus.verifier("score-rows/raises-late")
async def raises_late(sample: ludus.Sample) -> bool:
    """Raise for the answer b."""
    await asyncio.sleep(0)
    return raises(sample)


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of two verifiers, on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = HttpServer([ScoreService(["exact", "maths"])])
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    yield server.url
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_a_row_without_a_reward_is_told_with_its_line_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [{"gold": "\\frac{1", "response": "1"}] * 7
    file = written(tmp_path / "rows.jsonl", [{"gold": "2", "response": "2"}, *broken])
    assert main(["score", "maths", "--file", str(file)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "8 answers (7 invalid, 1 ok), mean reward 1.0000"
    assert told[1].startswith("  line 2: invalid: the gold ")
    assert told[1].endswith("cannot be read: its braces do not balance")
    assert [line.split(":")[0] for line in told[2:6]] == [f"  line {n}" for n in (3, 4, 5, 6)]
    assert told[6] == "  and 2 more without a reward; --out FILE has each"
    assert main(["score", "maths", "--file", str(file), "--json"]) == 0
    unscored = json.loads(capsys.readouterr().out)["unscored"]
    assert [each["row"] for each in unscored] == [2, 3, 4, 5, 6]
    assert "braces do not balance" in unscored[0]["detail"]


@pytest.mark.parametrize("remote", [False, True])
def test_every_row_gets_a_verdict_by_its_own_verifier(
    tmp_path: Path, url: str, remote: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = written(tmp_path / "rows.jsonl", ROWS), tmp_path / "deep" / "verdicts.jsonl"
    place = ["--url", url] if remote else []
    assert main(["score", "exact", "--file", str(file), "--out", str(out), "--json", *place]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["statuses"] == {"ok": 3, "invalid": 1}
    assert (told["accuracy"], told["out"]) == (1.0, str(out))
    verdicts = lines(out)
    assert [one["row"] for one in verdicts] == [1, 2, 3, 4]
    assert [one["id"] for one in verdicts] == ["half", "2", "3", "4"]
    assert [one["verifier"] for one in verdicts] == ["maths", "exact", "exact", "maths"]
    assert [one["reward"] for one in verdicts] == [1.0, 1.0, 0.0, None]


def test_a_file_of_verdicts_is_gone_on_with_where_it_was_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"gold": "a", "response": f"{n}", "verifier": "score-rows/seen"} for n in range(6)]
    file, out = written(tmp_path / "rows.jsonl", rows), tmp_path / "verdicts.jsonl"
    judged.clear()
    assert main(["score", str(file), "--out", str(out)]) == 0
    assert sorted(judged) == ["0", "1", "2", "3", "4", "5"]
    whole = out.read_bytes()
    first, second, third, rest = whole.split(b"\n", 3)
    lost = json.loads(third) | {"status": "unavailable", "reward": None}
    out.write_bytes(b"\n".join([first, second, json.dumps(lost).encode(), rest[:40]]))
    judged.clear()
    assert main(["score", str(file), "--out", str(out)]) == 0
    assert judged == ["2", "3", "4", "5"]  # what was lost is asked again
    assert out.read_bytes() == whole
    capsys.readouterr()
    written(file, [rows[1], *rows[1:]])
    assert main(["score", str(file), "--out", str(out)]) == 2
    assert "verdicts.jsonl:1: the verdict is on another answer" in capsys.readouterr().err
    assert out.read_bytes() == whole


def test_a_file_of_verdicts_is_gone_on_with_by_the_same_options_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten words of twelve: 1 - 1/6 of what a tolerance of 0.1 leaves, or nothing where all twelve
    are asked for.
    """
    file = written(tmp_path / "rows.jsonl", [{"gold": 12, "response": "a " * 10}])
    score = ["score", "target-length", "--file", str(file), "--out", str(tmp_path / "out.jsonl")]
    precise = ["--set", 'match="precise"']
    assert main(score) == 0
    assert main([*score, *precise]) == 2
    assert "another answer than row 1 now has, or by other options" in capsys.readouterr().err
    (known,) = lines(tmp_path / "out.jsonl")
    assert known["reward"] == pytest.approx(5 / 6 / 0.9)
    (tmp_path / "out.jsonl").unlink()
    for _ in range(2):
        assert main([*score, *precise]) == 0
        assert [one["reward"] for one in lines(tmp_path / "out.jsonl")] == [0.0]


def test_a_verifier_that_raises_costs_its_row_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"gold": "a", "response": answer, "verifier": f"score-rows/{kind}"}
        for kind in ("raises", "raises-late")
        for answer in ("a", "b", "c")
    ]
    file, out = written(tmp_path / "rows.jsonl", rows), tmp_path / "verdicts.jsonl"
    assert main(["score", str(file), "--out", str(out)]) == 0
    capsys.readouterr()
    assert [one["status"] for one in lines(out)] == ["ok", "error", "ok"] * 2
    assert all("raised KeyError: 'b'" in str(one["detail"]) for one in lines(out)[1::3])


def test_a_row_keeps_the_name_and_the_category_that_it_was_given(tmp_path: Path) -> None:
    names = [0, 1, "0", "x", False]
    rows = [{"gold": 1, "response": "1", "id": name, "category": name} for name in names]
    gaps = [{"gold": 1, "response": None, "completion": "1", "id": gap} for gap in (None, "")]
    read = read_rows(written(tmp_path / "rows.jsonl", [*rows, *gaps]))
    assert [(row.id, row.category) for row in read[:5]] == [(str(n), str(n)) for n in names]
    assert [(row.id, row.response) for row in read[5:]] == [("6", "1"), ("7", "1")]


def test_a_row_that_is_nested_too_deeply_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"response": "1", "gold": ' + "[" * 9999 + "]" * 9999 + "}\n")
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1: not a JSON object"):
        read_rows(file)


def test_a_verdict_on_an_image_goes_by_what_the_image_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(b"one")
    file = written(tmp_path / "rows.jsonl", [{"images": ["a.png"], "prompt": "a cat"}])
    rows = read_rows(file)
    VerdictFile(tmp_path / "out.jsonl", rows).add(rows[0], ludus.Verdict.of(1.0))
    monkeypatch.chdir(tmp_path)
    assert 1 in VerdictFile(Path("out.jsonl"), read_rows(Path("rows.jsonl"))).known
    (tmp_path / "a.png").write_bytes(b"two")
    with pytest.raises(ConfigError, match="the verdict is on another answer"):
        VerdictFile(tmp_path / "out.jsonl", read_rows(file))


@pytest.mark.parametrize(
    ("row", "flags", "words"),
    [
        ({"images": "a.png", "verifier": "exact"}, [], "'images' is a list of paths, got 'a.png'"),
        ({"images": ["a\0"], "verifier": "exact"}, [], "embedded null byte"),
        ({"gold": "1", "response": "1"}, [], "rows.jsonl:1: the row names no verifier"),
        ({"gold": "1", "response": "1", "verifier": "exakt"}, [], "did you mean 'exact'"),
        ({"response": "1", "verifier": "exact"}, [], "a row needs 'gold' (or 'prompt' or 'info')"),
        ({"gold": "1", "verifier": "exact"}, [], "this one has gold, verifier"),
        ({"gold": "1", "response": 1, "verifier": "exact"}, [], "rows.jsonl:1: Expected"),
        ({"images": ["no.png"], "verifier": "exact"}, [], "cannot read"),
        ({"gold": "1", "response": "1", "verifier": "exact"}, ["--out", "/proc/x"], "--out"),
        ({"gold": "1", "response": "1", "verifier": "exakt"}, ["URL"], "did you mean 'exact'"),
        ({"gold": "1", "response": "1", "verifier": "maths?a=1"}, ["URL"], "a server fixes"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, url: str, row: dict[str, object], flags: list[str], words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    place = ["--url", url] if flags == ["URL"] else flags
    assert main(["score", str(written(tmp_path / "rows.jsonl", [row])), *place]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_a_batch_beyond_the_servers_limits_is_split(url: str) -> None:
    samples = [ludus.Sample(response=f"{n}", gold=f"{n % 7}") for n in range(MAX_BATCH + 9)]
    large = [ludus.Sample(response="x" * (3 << 20), gold="x") for _ in range(6)]  # 18 MiB
    with ludus.connect(url) as server:
        verdicts = server.score_batch("exact", samples)
        assert [one.reward for one in verdicts] == [float(n < 7) for n in range(len(samples))]
        assert [one.reward for one in server.score_batch("exact", large)] == [0.0] * 6
        assert server.score_batch("exact", []) == []


def test_one_answer_is_scored_on_a_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["score", "maths", "--gold", "1/2", "--answer", "\\boxed{0.5}", "--url", url]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("reward 1")


def test_options_of_a_verifier_on_a_server_are_refused_with_where_they_go(url: str) -> None:
    with connect(url) as server:
        for ask in (server.verifier, server.group_verifier):
            for name, options in (("exact", {"strict": True}), ("exact?strict=true", {})):
                with pytest.raises(ConfigError, match=r"ludus serve 'exact\?strict=true'"):
                    ask(name, **options)
