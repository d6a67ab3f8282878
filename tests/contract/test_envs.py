"""Every registered environment keeps the contract, in this process and over HTTP."""

import pytest

from ludus.envs import env_ids
from ludus.envs.checks import check_env
from ludus.envs.serving.server import EnvService
from ludus.errors import MissingExtra
from ludus.wire.server import BackgroundServer, HttpServer

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]
COSTLY = {"ludus/files-v0", "ludus/functions-v0", "ludus/repair-v0", "ludus/verilog-v0"}
"""Their experts run programs for many seconds."""
SAMPLE = {"ludus/arithmetic-v0", "ludus/calls-v0", "ludus/shapes-v0"}
"""One question, tools and images: what differs on the wire."""


def quick(ids: set[str]) -> list[object]:
    """All shipped ids; those outside `ids` are slow tests."""
    slow = pytest.mark.slow
    return [env_id if env_id in ids else pytest.param(env_id, marks=slow) for env_id in SHIPPED]


@pytest.mark.parametrize("env_id", quick(set(SHIPPED) - COSTLY))
def test_it_keeps_the_contract(env_id: str) -> None:
    try:
        check_env(env_id, max_return=1.0)
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("env_id", quick(SAMPLE))
def test_it_keeps_the_contract_over_http(env_id: str) -> None:
    try:
        with BackgroundServer(HttpServer([EnvService([env_id])])) as url:
            check_env(f"{url}#{env_id}")
    except MissingExtra as error:
        pytest.skip(str(error))
