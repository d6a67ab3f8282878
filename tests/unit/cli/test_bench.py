"""`ludus bench` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ludus.cli.bench import LoadMeter
from ludus.cli.main import main
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import BackgroundServer, HttpServer

ENV = "ludus/arithmetic-v0"


def bench(url: str, out: Path, *arguments: str) -> list[dict[str, float]]:
    quick = ["--seconds", "0.2", "--token", "secret", "--out", str(out)]
    assert main(["bench", url, *quick, *arguments]) == 0
    rows: list[dict[str, float]] = json.loads(out.read_text())
    return rows


def test_a_quantile_is_the_shortest_time_that_its_share_took_at_most() -> None:
    hundred = LoadMeter(latencies_s=[number / 1000 for number in range(100, 0, -1)])
    assert [hundred.quantile_ms(share) for share in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert LoadMeter(latencies_s=[0.001, 0.1]).quantile_ms(0.5) == 1
    assert LoadMeter().quantile_ms(0.99) == 0


def test_rows_add_up_and_errors_have_their_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.json"
    services = [EnvService([ENV], limits=SessionLimits(max_sessions=2)), ScoreService(["exact"])]
    with BackgroundServer(HttpServer(services, token="secret")) as url:
        rows = bench(url, out, "--concurrency", "1", "3", "--timeout-s", "0.1")
        assert [row["concurrency"] for row in rows] == [1, 3]
        for row in rows:
            assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
            assert row["per_s"] > 0
            assert row["client_cpu_us"] > 0 < row["server_cpu_us"]
        assert rows[0]["errors"] == rows[0]["refused"] == {}
        assert set(rows[1]["errors"]) == set(rows[1]["refused"]) == {"sessions"}
        scored = bench(url, out, "--concurrency", "4", "--name", "exact")
        assert scored[0]["operations"] > 0
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{ENV} at http://")
    assert "429 sessions" in told[3]


def test_what_cannot_be_loaded_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BackgroundServer(HttpServer([ScoreService(["exact"])], token="secret")) as url:
        assert main(["bench", url, "--token", "wrong"]) == 2
        assert "token is missing or wrong" in capsys.readouterr().err
        lost = str(tmp_path / "nowhere" / "bench.json")
        quick = ["--seconds", "0.1", "--concurrency", "1", "--token", "secret", "--out", lost]
        assert main(["bench", url, *quick]) == 2
        told = capsys.readouterr()
        assert "cannot write" in told.err
        assert not told.out  # before anything is measured
        assert main(["bench", url, *quick[:-1], str(tmp_path)]) == 2
        told = capsys.readouterr()
        assert "it is a folder" in told.err
        assert not told.out
        assert main(["bench", url, *quick[:-1], "/dev/full"]) == 2
        assert "cannot write '/dev/full': No space left" in capsys.readouterr().err
        picture = str(tmp_path / "bench.png")
        assert main(["bench", url, *quick[:-1], picture]) == 2
        assert "bench.json" in capsys.readouterr().err
    assert main(["bench", "http://127.0.0.1:1", "--concurrency", "0"]) == 2
    assert "--concurrency must be at least 1" in capsys.readouterr().err
