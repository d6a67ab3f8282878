"""ludus ids in gymnasium's own registry, for `gymnasium.make`."""

from __future__ import annotations

import gymnasium

from .registry import on_register


def register_in_gymnasium() -> None:
    """Make every ludus id, of now and later, known to `gymnasium.make`."""
    on_register(_register)


def _register(env_id: str) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id,
            entry_point="ludus.envs.gym:make",
            kwargs={"env": env_id},
            disable_env_checker=True,
            order_enforce=False,
        )
