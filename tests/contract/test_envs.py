"""Every registered environment keeps the contract, in this process and over HTTP."""

import pytest

from ludus.envs import env_ids
from ludus.envs.checks import check_env
from ludus.envs.serving.server import EnvService
from ludus.errors import MissingExtra
from ludus.wire.server import BackgroundServer, HttpServer

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]


@pytest.mark.parametrize("env_id", SHIPPED)
def test_it_keeps_the_contract(env_id: str) -> None:
    try:
        check_env(env_id, max_return=1.0)
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("env_id", SHIPPED)
def test_it_keeps_the_contract_over_http(env_id: str) -> None:
    try:
        with BackgroundServer(HttpServer([EnvService([env_id])])) as url:
            check_env(f"{url}#{env_id}")
    except MissingExtra as error:
        pytest.skip(str(error))
