"""The interpreters of other projects' environments that tests play in."""

import pytest

from ludus.envs.outside.home import python_of
from ludus.envs.outside.kinds import find_kind
from ludus.errors import ConfigError


def python_with(kind: str) -> str:
    """Return the interpreter that `ludus env install KIND` made; skip the test without one."""
    try:
        return python_of(find_kind(kind))
    except ConfigError as error:
        pytest.skip(str(error))
