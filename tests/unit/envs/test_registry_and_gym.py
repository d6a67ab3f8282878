"""Names, and environments as `gymnasium.Env`."""

import asyncio
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import ludus
from ludus.envs import build_env, env_ids, find_env, register_env
from ludus.envs.families.arithmetic import Arithmetic
from ludus.envs.protocol import Reset, Step
from ludus.envs.serving.served import ServedEnv
from ludus.envs.spaces import TextSpace
from ludus.errors import ConfigError, ConstructionFailed, EpisodeEnded, InvalidAction, UnknownEnv
from ludus.messages import user


class Plain(ludus.TextEnv):
    """Plays on the caller's thread."""

    def __init__(self, word: str = "salve") -> None:
        self.word = word

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return f"{self.rng.random()}", {}

    def step(self, action: str) -> Step:
        return threading.current_thread().name, float(action == self.word), True, False, {}


class Waiting(ludus.TextEnv):
    """Plays on the background loop."""

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        await asyncio.sleep(0)
        return f"{self.rng.random()}", {}

    async def step(self, action: str) -> Step:
        await asyncio.sleep(0)
        return threading.current_thread().name, 1.0, True, False, {}


def test_an_unknown_id_names_the_near_miss() -> None:
    with pytest.raises(UnknownEnv, match="did you mean 'ludus/arithmetic-v0'"):
        ludus.make("ludus/arithmetik-v0")


@pytest.mark.parametrize("env_id", ["echo", "me/echo", "me/echo-v", "a/b/c-v0", "me/ec ho-v0", ""])
def test_an_id_of_another_form_is_refused(env_id: str) -> None:
    with pytest.raises(ConfigError, match="owner/name-vN"):
        register_env(env_id, Plain)


def test_a_taken_id_is_refused_and_the_same_class_may_come_again() -> None:
    register_env("test/plain-v0", Plain)
    register_env("test/plain-v0", Plain)
    with pytest.raises(ConfigError, match=r"already registered by .*Plain.*Waiting under another"):
        register_env("test/plain-v0", Waiting)
    assert find_env("test/plain-v0") is Plain
    assert "test/plain-v0" in env_ids()


def test_an_id_ludus_ships_is_refused_to_all_but_its_own_class() -> None:
    register_env("ludus/arithmetic-v0", Arithmetic)
    with pytest.raises(ConfigError, match=r"is one ludus ships .*Plain under another id"):
        register_env("ludus/arithmetic-v0", Plain)
    with pytest.raises(ConfigError, match="ludus ships"):
        register_env("ludus/arithmetic-v0", Arithmetic, max_number=5)
    assert find_env("ludus/arithmetic-v0") is Arithmetic


def test_arguments_fixed_by_an_id_are_given_and_can_be_changed() -> None:
    register_env("test/vale-v0", Plain, word="vale")
    made = build_env("test/vale-v0")
    assert isinstance(made, Plain)
    assert made.word == "vale"
    other = build_env("test/vale-v0", word="x")
    assert isinstance(other, Plain)
    assert other.word == "x"
    assert find_env("test/vale-v0").__doc__ == Plain.__doc__


@pytest.mark.parametrize("env_id", ["ludus/arithmetic-v0", "test/plain2-v0"])
def test_arguments_it_does_not_take_are_refused_by_name(env_id: str) -> None:
    register_env("test/plain2-v0", Plain, word="x")
    with pytest.raises(ConfigError, match=f"{env_id} does not take these arguments.*colour"):
        build_env(env_id, colour="red")


@pytest.mark.parametrize("kind", ["openenv", "ors", "nemo-gym"])
def test_what_an_id_says_itself_is_no_option(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"it takes: [a-tv-z_, ]*max_turns") as refused:
        build_env(f"{kind}/localhost:1", colour="red")
    assert "url" not in str(refused.value)


def test_a_refusal_shows_no_key() -> None:
    with pytest.raises(ConfigError, match="does not take these arguments") as refused:
        build_env("ors/localhost:1", api_key="sk-123", colour="red")
    assert "sk-123" not in str(refused.value)


def test_a_type_error_inside_a_constructor_is_not_taken_for_wrong_arguments() -> None:
    class Buggy(Plain):
        def __init__(self) -> None:
            len(3)  # type: ignore[arg-type]

    register_env("test/buggy-v0", Buggy)
    told = r"test/buggy-v0 cannot be made: TypeError: .* has no len\(\) \(test_registry_and_gym.py:"
    with pytest.raises(ConstructionFailed, match=told) as failed:
        build_env("test/buggy-v0")
    assert isinstance(failed.value.__cause__, TypeError)


def test_what_is_no_env_is_refused() -> None:
    def nothing() -> Any:
        return {}

    register_env("test/none-v0", nothing)
    with pytest.raises(ConfigError, match="made dict, not a TextEnv"):
        build_env("test/none-v0")
    for target in (dict, 5):
        with pytest.raises(ConfigError, match=r"cannot register .* a subclass of ludus.TextEnv"):
            register_env("test/nothing-v0", target)  # type: ignore[arg-type]
    assert "test/nothing-v0" not in env_ids()


def test_a_decorator_without_an_id_says_what_it_takes() -> None:
    with pytest.raises(ConfigError, match=r"@ludus.register\('me/echo-v0'\), got <class .*Plain"):
        ludus.register(Plain)  # type: ignore[arg-type]


def test_what_a_class_is_missing_is_named() -> None:
    class Unfinished(ludus.TextEnv):
        def step(self, action: str) -> Step:
            return "", 0.0, True, False, {}

    register_env("test/unfinished-v0", Unfinished)
    with pytest.raises(ConfigError, match=r"Unfinished, which does not define reset\(\)"):
        build_env("test/unfinished-v0")


def test_arguments_that_are_needed_or_cannot_work_are_told() -> None:
    class Sized(Plain):
        def __init__(self, size: int) -> None:
            super().__init__("x")
            if size < 1:
                raise ValueError(f"size must be at least 1, got {size}")

    register_env("test/sized-v0", Sized)
    with pytest.raises(ConfigError, match=r"needs arguments, 'test/sized-v0\?name=value'.*'size'"):
        build_env("test/sized-v0")
    with pytest.raises(ConfigError, match=r"cannot be made with {'size': 0}: size must be at"):
        build_env("test/sized-v0", size=0)
    assert isinstance(build_env("test/sized-v0", size=1), Sized)


def install(folder: Path, package: str, offers: str) -> None:
    """What pip leaves of a package with entry points."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[ludus.envs]\n{offers}\n")


def test_what_packages_offer_is_found_and_what_is_wrong_with_it_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = "ludus.envs.families.arithmetic:Arithmetic"
    install(tmp_path, "one", f"me/sums-v0 = {shipped}\nme/both-v0 = {shipped}\nodd = {shipped}")
    install(
        tmp_path,
        "two",
        "me/both-v0 = ludus.envs.families.maths:Maths\nme/gone-v0 = ludus.envs:Gone",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_env("me/sums-v0") is Arithmetic
    with pytest.raises(ConfigError, match=r"by the package one \(.*\) and by the package two \(.*"):
        find_env("me/both-v0")
    with pytest.raises(ConfigError, match=r"the package two \(ludus.envs:Gone\), cannot be import"):
        find_env("me/gone-v0")
    with pytest.raises(ConfigError, match="'odd' is not 'name-vN'"):
        find_env("odd")


def test_gymnasium_makes_the_same_env() -> None:
    env: gymnasium.Env[Any, Any] = gymnasium.make("ludus/arithmetic-v0", max_operations=1)
    observation, _ = env.reset(seed=3)
    assert observation == ludus.make("ludus/arithmetic-v0", max_operations=1).reset(seed=3)[0]
    assert env.spec is not None
    assert env.spec.id == "ludus/arithmetic-v0"


def test_ids_registered_later_are_known_to_gymnasium() -> None:
    register_env("test/later-v0", Plain)
    assert gymnasium.make("test/later-v0").reset(seed=1)[0]


@pytest.mark.parametrize("env", [Plain, Waiting, Plain("x"), "ludus/arithmetic-v0"])
def test_gymnasiums_own_check_passes(env: Any) -> None:
    check_env(ludus.make(env))


def test_render_mode_is_text_or_nothing() -> None:
    with pytest.raises(ConfigError, match="render_mode"):
        ludus.make(Plain, render_mode="human")


def test_plain_envs_play_on_the_callers_thread_and_async_ones_do_not() -> None:
    here = threading.current_thread().name
    plain, waiting = ludus.make(Plain), ludus.make(Waiting)
    plain.reset(seed=0)
    waiting.reset(seed=0)
    assert plain.step("salve")[:2] == (here, 1.0)
    assert waiting.step("salve")[0] == "ludus-background"


async def test_both_work_under_a_running_loop() -> None:
    for kind in (Plain, Waiting):
        env = ludus.make(kind)
        env.reset(seed=0)
        assert env.step("salve")[1] == 1.0
        env.close()
        env.close()


async def test_make_async_awaits() -> None:
    session = ludus.make_async("ludus/arithmetic-v0")
    observation, info = await session.reset(seed=3)
    assert (observation, info["task"]) == (
        ludus.make("ludus/arithmetic-v0").reset(seed=3)[0],
        "train/3",
    )


def test_without_a_seed_episodes_differ_and_the_first_seed_fixes_them_all() -> None:
    def three() -> list[Any]:
        env = ludus.make(Plain)
        return [env.reset(seed=5)[0], env.reset()[0], env.reset()[0]]

    assert three() == three()
    assert len(set(three())) == 3


def test_steps_out_of_order_and_wrong_actions_are_refused() -> None:
    env = ludus.make(Plain)
    with pytest.raises(EpisodeEnded):
        env.step("x")
    env.reset(seed=0)
    with pytest.raises(InvalidAction):
        env.step(42)  # type: ignore[arg-type]
    env.step("x")
    with pytest.raises(EpisodeEnded):
        env.step("x")


def test_render_shows_the_last_observation() -> None:
    env = ludus.make(Plain)
    shown, _ = env.reset(seed=0)
    assert env.render() == shown


def test_a_plain_env_that_waits_is_told_to_be_async() -> None:
    class Sly(Plain):
        def step(self, action: str) -> Any:
            return asyncio.sleep(0)

    env = ludus.make(Sly)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="async def"):
        env.step("x")


def test_the_space_holds_any_text_and_messages_and_nothing_else() -> None:
    space = TextSpace(seed=0)
    assert all(space.sample() in space for _ in range(50))
    assert all(x in space for x in ("", " \n", "数" * 9999, user("x"), [user("x")], []))
    assert all(x not in space for x in (None, 3, b"x", ["x"], ("x",)))
    assert TextSpace(seed=1).sample() == TextSpace(seed=1).sample()
    assert pickle.loads(pickle.dumps(space)) == space


def test_the_demo_env_builds_with_json_arguments() -> None:
    assert isinstance(build_env("ludus/arithmetic-v0", demo_fault="wrong-operator"), Arithmetic)


@pytest.mark.parametrize(
    ("env_id", "arguments", "said"),
    [
        ("ludus/arithmetic-v0", {"max_operations": 1.5}, "max_operations must be a whole number"),
        ("ludus/arithmetic-v0", {"operators": 3}, "operators must be a text, got 3"),
        ("ludus/maths-v0", {"test": "half"}, "test must be a number, got 'half'"),
        ("ludus/maths-v0", {"test": 2}, "shares of the whole"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(
    env_id: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        ludus.make(env_id, **arguments)


def test_making_what_is_known_asks_no_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_every_package(**group: str) -> Any:
        raise AssertionError("entry points were read")

    served = ServedEnv("ludus/arithmetic-v0")
    monkeypatch.setattr("ludus.registry.entry_points", reads_every_package)
    assert type(served.build()) is type(build_env("ludus/arithmetic-v0"))


def test_gymnasiums_files_are_found_before_its_import() -> None:
    """Who looks for a package's files asks the loader, and gives up where it has no such method."""
    code = (
        "import ludus, pkgutil, sys\n"
        "assert 'gymnasium' not in sys.modules\n"
        "assert pkgutil.get_data('gymnasium', '__init__.py')\n"
        "import gymnasium\n"
        "assert 'ludus/arithmetic-v0' in gymnasium.registry\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
