"""What release 0.1.0 wrote is taken by this one: its settings and its run folders. Its wire is in
`test_http_documents.py`.

`golden/0.1.0` is what that release recorded, and does not change any more. Where a later release
cannot take it, the refusal has to say what to do.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from aiohttp import web

import ludus
from ludus.cli.serve_options import options_in
from ludus.config import build, read_toml
from ludus.errors import ConfigError, ServerUnreachable
from ludus.trainer.config import TrainConfig
from ludus.trainer.run.changes import refuse_changes
from ludus.trainer.setup import settle

OLD = Path(__file__).parent / "golden" / "0.1.0"


def test_the_file_of_an_old_server_is_taken() -> None:
    options = options_in(OLD / "serve.toml")
    assert (options.max_sessions, options.worker_memory_mb) == (100, 512)
    assert options.names == ("ludus/arithmetic-v0", "exact", "maths")


def test_a_run_of_an_old_release_goes_on_with_its_settings(tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD / "run", tmp_path / "run"))
    config = build(TrainConfig, read_toml(run / "config.toml"))
    config, algorithm = settle(config)
    assert refuse_changes(run, config, algorithm.recipe) == []


def test_a_setting_that_is_gone_is_refused_by_name() -> None:
    table = read_toml(OLD / "run" / "config.toml") | {"stepz": 100}
    with pytest.raises(ConfigError, match="no setting named 'stepz'; did you mean 'steps'"):
        build(TrainConfig, table)


async def test_a_server_of_another_protocol_is_refused_with_what_to_do() -> None:
    async def readyz(request: web.Request) -> web.Response:
        return web.json_response({"status": "ready", "instance": "newer", "protocol": 2})

    newer = web.Application()
    newer.router.add_get("/readyz", readyz)
    runner = web.AppRunner(newer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with ludus.connect(url) as client:
        (member,) = client.replicas.members
        with pytest.raises(ServerUnreachable, match="install the same release of ludus-rl on both"):
            await member.look(member.client, 10)
    await runner.cleanup()
