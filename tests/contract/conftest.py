"""What the contracts need of the machine; asked once, when the first test needs it."""

import shutil

import pytest

from ludus.errors import ConfigError
from ludus.sandboxes import execute


@pytest.fixture(scope="session")
def a_sandbox() -> None:
    """Skips where no sandbox holds."""
    try:
        execute("pass")
    except ConfigError as error:
        pytest.skip(f"no sandbox: {error}")


@pytest.fixture(scope="session")
def icarus(a_sandbox: None) -> None:
    """Skips where nothing can be simulated."""
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed: apt-get install iverilog")
