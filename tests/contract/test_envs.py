"""Every registered environment keeps the contract."""

import pytest

from ludus.envs import env_ids
from ludus.envs.checks import check_env
from ludus.errors import MissingExtra

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]


@pytest.mark.parametrize("env_id", SHIPPED)
def test_it_keeps_the_contract(env_id: str) -> None:
    try:
        check_env(env_id, max_return=1.0)
    except MissingExtra as error:
        pytest.skip(str(error))
