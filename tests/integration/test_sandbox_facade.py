"""The functions that need no setting up."""

from __future__ import annotations

import os

import pytest

import ludus.sandboxes
from ludus.errors import ConfigError

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
]


def test_the_module_level_function_needs_no_setting_up() -> None:
    try:
        assert ludus.sandboxes.execute("print(6 * 7)").stdout == "42\n"
        assert ludus.sandboxes.grade("def f(): return 1", ["assert f() == 1"]).reward == 1.0
        with pytest.raises(ConfigError, match="network"):
            ludus.sandboxes.execute("", network=True)
    finally:
        ludus.sandboxes.close_default()
