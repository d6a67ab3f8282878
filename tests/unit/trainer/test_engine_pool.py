"""The pool of engines: routing, losses, publishes, long tails. The engines are scripted, and one
test kills real processes.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Finish, Generation, Sampling, WeightSource
from ludus.agent.images import PlacedImage
from ludus.errors import (
    ConfigError,
    EngineLost,
    NoEngineLeft,
    Overloaded,
    RequestTimeout,
    ServerFault,
    StaleWeights,
)
from ludus.trainer.engines.local import EngineClosed, LocalEngine
from ludus.trainer.engines.pool import EnginePool, Publishing
from ludus.trainer.engines.pool.pool import SLACK, DeadlyRequest
from ludus.trainer.engines.pool.seats import BLOCK, PrefixRoutes
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
from ludus.trainer.models.loading import write_shell
from ludus.trainer.models.tiny import build_model
from ludus.trainer.models.weights import MemoryWeights, WeightsRefused

TOKEN_S = 0.002


class Scripted:
    """An engine whose token `n` of an answer is `100 * seed + n`, with log-probability `-n`."""

    def __init__(self, name: str = "engine", *, token_s: float = TOKEN_S) -> None:
        self.name = name
        self.token_s = token_s
        self.max_length = 1000
        self.version = -1
        self.bias = 0.0
        self.alive = True
        self.hung = False
        self.fails: Exception | None = None
        """What every request raises."""
        self.refuses: Exception | None = None
        """What every publish raises."""
        self.deadly_seeds: set[int] = set()
        self.dies_scoring = False
        self.revivals = 0
        self.broken_revivals = 0
        self.prompts: list[list[int]] = []
        self.published: list[int] = []
        self.acts: list[str] = []
        self.load_s = 0.0
        self._ended = asyncio.Event()
        self._died = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()

    def die(self) -> None:
        self.alive = False
        self._died.set()

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        self._refuse_dead()
        if self.fails is not None:
            raise self.fails
        assert self.version >= 0, "asked before it was given weights"
        self.prompts.append(list(ids))
        if sampling.seed in self.deadly_seeds:
            self.die()
        tokens: list[int] = []
        versions: list[int] = []
        first, ended = sampling.drawn, self._ended
        while len(tokens) < sampling.max_tokens and not ended.is_set():
            await asyncio.sleep(self.token_s)
            await self._free.wait()
            while self.hung:
                await asyncio.sleep(0.01)
            self._refuse_dead()
            tokens.append(100 * sampling.seed + first + len(tokens))
            versions.append(self.version)
        cut = len(tokens) < sampling.max_tokens
        return Generation(
            ids=tokens,
            logprobs=[-float(token % 100) for token in tokens],
            finish=Finish.ABORT if cut else Finish.LENGTH,
            versions=versions,
        )

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        if self.dies_scoring:
            self.die()
        self._refuse_dead()
        return [self.bias] * len(ids)

    async def set_weights(self, source: WeightSource, version: int) -> None:
        self._refuse_dead()
        await asyncio.sleep(self.load_s)
        self._refuse_dead()
        if self.refuses is not None:
            raise self.refuses
        tensors = {name: one for piece in source.pieces() for name, one in piece.items()}
        self.bias = float(tensors["bias"])  # type: ignore[arg-type]  # pyright: ignore
        self.version = version
        self.published.append(version)

    async def pause(self) -> None:
        self.acts.append("pause")
        self._free.clear()

    async def resume(self) -> None:
        self.acts.append("resume")
        self._free.set()

    async def abort(self) -> None:
        self._refuse_dead()
        self.acts.append("abort")
        self._ended.set()
        self._ended = asyncio.Event()

    async def close(self) -> None:
        self.acts.append("close")
        self.alive = False

    async def check(self) -> None:
        self._refuse_dead()

    async def revive(self) -> None:
        self.revivals += 1
        await asyncio.sleep(0.005)
        if self.broken_revivals:
            self.broken_revivals -= 1
            raise RequestTimeout(f"{self.name} was not ready in time")
        self.version, self.alive = -1, True
        self._free.set()

    def _refuse_dead(self) -> None:
        if not self.alive:
            raise EngineLost(f"{self.name} is dead")


def weights(bias: float = 0.0) -> MemoryWeights:
    return MemoryWeights({"bias": torch.tensor(bias)})


@contextlib.asynccontextmanager
async def pool_of(count: int, **options: Any) -> AsyncGenerator[tuple[EnginePool, list[Scripted]]]:
    engines = [Scripted(f"engine {n}") for n in range(count)]
    options.setdefault("patience_s", 5.0)
    pool = EnginePool(engines, **options)
    try:
        await pool.set_weights(weights(), 1)
        yield pool, engines
    finally:
        await pool.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.trainer.engines.pool.publisher.CHECK_S", 0.02)
    monkeypatch.setattr("ludus.trainer.engines.pool.publisher.MEND_AGAIN_S", 0.01)
    monkeypatch.setattr("ludus.trainer.engines.pool.pool.TAIL_S", 0.05)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def ask(
    pool: EnginePool, count: int, *, tokens: int = 20, first: int = 0
) -> list[asyncio.Task[Generation]]:
    """Ask for answers to prompts that have nothing in common."""
    return [
        asyncio.create_task(
            pool.generate(
                [1000 * (n + 1) + k for k in range(40)], Sampling(max_tokens=tokens, seed=n)
            )
        )
        for n in range(first, first + count)
    ]


def expected(seed: int, tokens: int = 20) -> list[int]:
    return [100 * seed + n for n in range(tokens)]


# --- routing ------------------------------------------------------------------


async def test_requests_go_to_the_idlest_engine() -> None:
    async with pool_of(3) as (pool, engines):
        answers = await asyncio.gather(*ask(pool, 9))
        assert [one.ids for one in answers] == [expected(seed) for seed in range(9)]
        assert [len(one.prompts) for one in engines] == [3, 3, 3]


async def test_the_next_turn_goes_where_the_episode_was() -> None:
    async with pool_of(3) as (pool, engines):
        prompts = [[1000 * n + k for k in range(2 * BLOCK)] for n in range(1, 7)]
        for turn in range(4):
            sampling = Sampling(max_tokens=BLOCK, seed=turn)
            order = prompts if turn % 2 else prompts[::-1]  # arrivals in any order
            answers = await asyncio.gather(*(pool.generate(one, sampling) for one in order))
            for prompt, answer in zip(order, answers, strict=True):
                prompt += [*answer.ids, 7]
        for engine in engines:
            assert len({ids[0] for ids in engine.prompts}) == 2  # two episodes, all their turns
            assert len(engine.prompts) == 8


async def test_a_shared_prompt_does_not_queue_behind_one_engine() -> None:
    async with pool_of(2) as (pool, engines):
        prompt = list(range(4 * BLOCK))
        count = 4 * SLACK
        sampling = [Sampling(max_tokens=20, seed=seed) for seed in range(count)]
        await asyncio.gather(*(pool.generate(prompt, one) for one in sampling))
        loads = [len(one.prompts) for one in engines]
        assert sum(loads) == count
        assert abs(loads[0] - loads[1]) <= SLACK + 1


def test_routes_know_the_longest_beginning_and_forget() -> None:
    routes = PrefixRoutes(max_blocks=6)
    a, b = list(range(3 * BLOCK)), [*range(BLOCK), *range(500, 500 + 2 * BLOCK)]
    routes.note(a, 0)
    routes.note(b, 1)
    assert routes.longest([*a, 1, 2]) == (3 * BLOCK, 0)
    assert routes.longest(b) == (3 * BLOCK, 1)
    assert routes.longest(a[: BLOCK + 1]) == (BLOCK, 1)  # the last who computed it
    assert routes.longest([9, *a]) == (0, -1)
    assert routes.longest([]) == (0, -1)
    routes.forget(0)
    assert routes.longest(a) == (BLOCK, 1)
    routes.note([7] * (5 * BLOCK), 2)  # the sixth place is left for the newest of the others
    assert routes.longest([7] * (5 * BLOCK)) == (5 * BLOCK, 2)
    assert routes.longest(b)[0] in (0, 3 * BLOCK)


# --- losses ---------------------------------------------------------------------


async def test_the_requests_of_a_lost_engine_are_sampled_again_elsewhere() -> None:
    async with pool_of(2) as (pool, engines):
        asked = ask(pool, 6)
        await asyncio.sleep(5 * TOKEN_S)
        engines[0].die()
        answers = await asyncio.gather(*asked)
        assert [one.ids for one in answers] == [expected(seed) for seed in range(6)]
        assert all(one.finish is Finish.LENGTH for one in answers)
        await until(lambda: pool.counters()["engine/serving"] == 2)
        # back with today's weights before it served
        assert (engines[0].revivals, engines[0].published) == (1, [1, 1])
        assert pool.counters()["engine/lost"] == 1


async def test_an_engine_that_dies_while_idle_is_noticed_and_mended() -> None:
    async with pool_of(2) as (pool, engines):
        engines[1].die()
        await until(lambda: engines[1].published == [1, 1])
        await pool.set_weights(weights(), 2)
        assert engines[1].published == [1, 1, 2]


async def test_weights_of_a_publish_during_the_loss_reach_the_engine_that_comes_back() -> None:
    async with pool_of(2) as (pool, engines):
        engines[0].broken_revivals = 2
        engines[0].die()
        await until(lambda: pool.counters()["engine/serving"] == 1)
        await pool.set_weights(weights(0.5), 2)
        assert (pool.version, engines[1].published, engines[0].published) == (2, [1, 2], [1])
        await until(lambda: pool.counters()["engine/serving"] == 2)
        assert (engines[0].published, engines[0].bias) == ([1, 2], 0.5)


async def test_a_request_that_two_engines_did_not_survive_is_not_given_to_a_third() -> None:
    async with pool_of(3) as (pool, engines):
        for engine in engines:
            engine.deadly_seeds = {13}
        with pytest.raises(
            DeadlyRequest, match=r"2 engines were lost .* 4 prompt tokens \(seed 13\)"
        ):
            await pool.generate([5, 6, 7, 8], Sampling(max_tokens=9, seed=13))
        assert sum(not one.alive or one.revivals > 0 for one in engines) == 2
        # nor is it tried when the episode is played again; other requests are
        with pytest.raises(DeadlyRequest):
            await pool.generate([5, 6, 7, 8], Sampling(max_tokens=9, seed=13))
        assert (await pool.generate([5, 6, 7, 8], Sampling(max_tokens=3, seed=1))).ids == [
            100,
            101,
            102,
        ]
        assert pool.counters()["engine/lost"] == 2


async def test_a_scoring_that_two_engines_did_not_survive_is_not_given_to_a_third() -> None:
    async with pool_of(3) as (pool, engines):
        for engine in engines:
            engine.dies_scoring = True
        for _ in range(3):
            with pytest.raises(DeadlyRequest, match="2 engines were lost"):
                await pool.logprobs([5, 6, 7, 8])
        assert pool.counters()["engine/lost"] == 2
        for engine in engines:
            engine.dies_scoring = False
        assert await pool.logprobs([5, 6]) == [0.0, 0.0]


async def test_an_engine_that_dies_again_and_again_stays_out_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pool_of(2) as (pool, engines):
        engines[0].broken_revivals = 100
        engines[0].die()
        await until(lambda: pool.fleet.members[0].barred)
        assert engines[0].revivals == 4  # and the loss itself: five in all
        told = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
        assert len(told) == 1
        assert "engine 0 stays out: it was lost 5 times in 600 s" in told[0]
        assert (await asyncio.gather(*ask(pool, 2)))[1].ids == expected(1)
        await asyncio.sleep(0.1)
        assert engines[0].revivals == 4


async def test_losses_that_lie_far_apart_do_not_bar_an_engine() -> None:
    async with pool_of(1) as (pool, engines):
        for count in range(1, 8):
            engines[0].die()
            await until(lambda count=count: engines[0].revivals == count)  # type: ignore[misc]
            await until(lambda: pool.counters()["engine/serving"] == 1)
            seat = pool.fleet.members[0]
            for index, death in enumerate(seat.deaths):
                seat.deaths[index] = death - 601 / 4
        assert not pool.fleet.members[0].barred


async def test_requests_wait_while_every_engine_is_gone_and_go_on() -> None:
    async with pool_of(2) as (pool, engines):
        for engine in engines:
            engine.broken_revivals = 2
            engine.die()
        await until(lambda: pool.counters()["engine/serving"] == 0)
        answers = await asyncio.gather(*ask(pool, 4))
        assert [one.ids for one in answers] == [expected(seed) for seed in range(4)]


async def test_waiting_for_an_engine_ends_with_an_error_that_names_each() -> None:
    async with pool_of(2, patience_s=0.1) as (pool, engines):
        for engine in engines:
            engine.die()
            engine.revive = lambda: asyncio.sleep(60)  # type: ignore[method-assign]
        await until(lambda: pool.counters()["engine/serving"] == 0)
        with pytest.raises(
            NoEngineLeft, match=r"no engine served for 0\.1 s: engine 0 .*; engine 1 "
        ):
            await pool.generate([5], Sampling(max_tokens=1))
        with pytest.raises(NoEngineLeft):
            await pool.logprobs([5])


async def test_nobody_waits_for_engines_that_all_stay_out() -> None:
    async with pool_of(2, patience_s=600) as (pool, engines):
        asked = ask(pool, 2)
        for engine in engines:
            engine.broken_revivals = 100
            engine.die()
        async with asyncio.timeout(60):
            for error in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(error, NoEngineLeft)
                assert "every engine is out for good: engine 0 was lost 5 times" in str(error)


async def test_a_hung_engine_is_left_by_its_requests_when_it_is_found_lost() -> None:
    async with pool_of(2) as (pool, engines):
        engines[0].hung = True
        asked = ask(pool, 4)
        await asyncio.sleep(0.02)

        async def silent() -> None:
            raise RequestTimeout("no answer to the check")

        engines[0].check = silent  # type: ignore[method-assign]
        answers = await asyncio.gather(*asked)
        assert [one.ids for one in answers] == [expected(seed) for seed in range(4)]


@pytest.mark.parametrize("error", [Overloaded("busy"), ServerFault("failed"), ConfigError("no")])
async def test_an_error_of_a_healthy_engine_goes_to_the_caller(error: Exception) -> None:
    async with pool_of(2) as (pool, engines):
        for engine in engines:
            engine.fails = error
        with pytest.raises(type(error)):
            await pool.generate([5], Sampling(max_tokens=1))
        assert pool.counters()["engine/lost"] == 0


async def test_a_failing_request_of_a_dead_engine_is_a_loss() -> None:
    async with pool_of(2) as (pool, engines):
        engines[0].fails = ServerFault("cut off")

        async def gone() -> None:
            raise RequestTimeout("no answer")

        engines[0].check = gone  # type: ignore[method-assign]
        assert (await pool.generate([5], Sampling(max_tokens=2))).ids == [0, 1]
        assert pool.counters()["engine/lost"] == 1


# --- publishing -----------------------------------------------------------------


async def test_a_publish_goes_to_all_at_once_and_one_that_fails_holds_up_nobody() -> None:
    async with pool_of(4, publishing=Publishing(timeout_s=0.5)) as (pool, engines):
        for engine in engines:
            engine.load_s = 0.05
        engines[1].refuses = ServerFault("disk full, as if")
        engines[2].load_s = 60
        loop = asyncio.get_running_loop()
        started = loop.time()
        await pool.set_weights(weights(), 2)
        assert loop.time() - started < 5  # the slow one is not waited for
        assert [one.published[-1] for one in engines] == [1 + (n in (0, 3)) for n in range(4)]
        assert pool.counters()["engine/serving"] == 2
        engines[1].refuses, engines[2].load_s = None, 0.0
        await until(lambda: pool.counters()["engine/serving"] == 4)
        assert [one.version for one in engines] == [2] * 4


async def test_running_requests_continue_over_a_publish_with_a_version_for_each_token() -> None:
    async with pool_of(2) as (pool, _):
        asked = ask(pool, 4, tokens=40)
        for version in (2, 3):
            await asyncio.sleep(8 * TOKEN_S)
            await pool.set_weights(weights(), version)
        for answer in await asyncio.gather(*asked):
            assert answer.versions == sorted(answer.versions)
            assert set(answer.versions) == {1, 2, 3}
            assert len(answer.versions) == 40


async def test_weights_of_another_model_are_refused_and_the_old_ones_stay() -> None:
    async with pool_of(2) as (pool, engines):
        for engine in engines:
            engine.refuses = WeightsRefused("not of this model")
        with pytest.raises(WeightsRefused):
            await pool.set_weights(weights(0.7), 2)
        assert (pool.version, pool.counters()["engine/serving"]) == (1, 2)
        engines[0].refuses = None
        engines[0].die()
        await until(lambda: engines[0].published == [1, 1])
        assert engines[0].bias == 0.0


async def test_an_engine_with_stale_weights_ends_the_publish_and_serves_nobody() -> None:
    async with pool_of(2) as (pool, engines):
        engines[1].refuses = StaleWeights("off by 1 nat")
        with pytest.raises(StaleWeights):
            await pool.set_weights(weights(), 2)
        assert engines[0].published == [1, 2]
        await asyncio.gather(*ask(pool, 4))
        assert engines[1].prompts == []


async def test_an_interrupted_publish_is_completed_in_the_background() -> None:
    async with pool_of(2) as (pool, engines):
        for engine in engines:
            engine.load_s = 0.1
        publishing = asyncio.create_task(pool.set_weights(weights(0.25), 2))
        await until(lambda: pool.version == 2)
        await asyncio.sleep(0.01)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await until(lambda: pool.counters()["engine/serving"] == 2)
        assert [(one.version, one.bias) for one in engines] == [(2, 0.25)] * 2
        assert [one.revivals for one in engines] == [0, 0]


async def test_the_pool_keeps_one_file_of_the_current_weights_until_it_is_closed(
    tmp_path: Path,
) -> None:
    async with pool_of(2, publishing=Publishing(folder=str(tmp_path))) as (pool, _):
        for version in (2, 3):
            await pool.set_weights(weights(), version)
            assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


async def test_nothing_is_served_before_weights_are_published() -> None:
    pool = EnginePool([Scripted()])
    with pytest.raises(ConfigError, match="no weights yet"):
        await pool.generate([5], Sampling(max_tokens=1))
    await pool.close()
    with pytest.raises(ConfigError, match="at least one"):
        EnginePool([])


async def test_scoring_asks_each_engine_in_turn() -> None:
    async with pool_of(3) as (pool, engines):
        for number, engine in enumerate(engines):
            engine.bias = float(number)
        found = [(await pool.logprobs([5]))[0] for _ in range(6)]
        assert found == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]
        engines[1].die()
        assert {(await pool.logprobs([5]))[0] for _ in range(4)} <= {0.0, 2.0}


# --- pausing, aborting, repacking, closing ----------------------------------------


async def test_pause_holds_engines_that_come_back_too() -> None:
    async with pool_of(2) as (pool, engines):
        await pool.pause()
        engines[0].die()
        await until(lambda: engines[0].acts == ["pause", "pause"])
        waiting = ask(pool, 2)
        await asyncio.sleep(0.03)
        assert not any(one.done() for one in waiting)
        await pool.resume()
        assert [one.ids for one in await asyncio.gather(*waiting)] == [expected(0), expected(1)]


async def test_abort_returns_what_there_is_to_everyone() -> None:
    async with pool_of(2) as (pool, _):
        asked = ask(pool, 4, tokens=200)
        await asyncio.sleep(10 * TOKEN_S)
        await pool.abort()
        for seed, answer in enumerate(await asyncio.gather(*asked)):
            assert answer.finish is Finish.ABORT
            assert answer.ids == expected(seed, len(answer.ids))
            assert 0 < len(answer.ids) < 200


async def test_abort_reaches_requests_that_wait_for_an_engine() -> None:
    async with pool_of(1) as (pool, engines):
        engines[0].broken_revivals = 3
        engines[0].revive = lambda: asyncio.sleep(60)  # type: ignore[method-assign]
        asked = ask(pool, 2)
        await asyncio.sleep(5 * TOKEN_S)
        engines[0].die()
        await until(lambda: pool.counters()["engine/serving"] == 0)
        await pool.abort()
        for answer in await asyncio.gather(*asked):
            assert (answer.finish, answer.ids) == (Finish.ABORT, [])


async def test_a_long_tail_is_moved_onto_one_engine_and_continues_where_it_was() -> None:
    async with pool_of(4, repack_rows=6) as (pool, engines):
        asked = ask(pool, 8, tokens=150)
        await asyncio.sleep(0.03)  # eight are too many to be a tail
        assert pool.moved_requests == 0
        for task in asked[2:6]:
            task.cancel()
        await until(lambda: pool.moved_requests > 0)
        left = [seed for seed in range(8) if seed not in range(2, 6)]
        answers = await asyncio.gather(*(asked[seed] for seed in left))
        assert [one.ids for one in answers] == [expected(seed, 150) for seed in left]
        assert [one.logprobs for one in answers] == [
            [-float(token % 100) for token in expected(seed, 150)] for seed in left
        ]
        assert all(len(one.versions) == 150 for one in answers)
        assert pool.moved_requests == 3  # each engine had one left; each moved once
        again = [ids for one in engines for ids in one.prompts if len(ids) > 40]
        assert len(again) == 3
        # and took its tokens along
        assert all(ids[40:] == expected(ids[40] // 100, len(ids) - 40) for ids in again)


async def test_repacking_survives_the_loss_of_either_engine() -> None:
    for victim in (0, 1):
        async with pool_of(2) as (pool, engines):
            asked = ask(pool, 4, tokens=60)
            await asyncio.sleep(10 * TOKEN_S)
            repacking = asyncio.create_task(pool.repack())
            await asyncio.sleep(0)
            engines[victim].die()
            await repacking
            answers = await asyncio.gather(*asked)
            assert [one.ids for one in answers] == [expected(seed, 60) for seed in range(4)]


async def test_a_request_that_arrives_while_engines_are_drained_is_not_cut() -> None:
    async with pool_of(2) as (pool, engines):
        aborts = engines[1].abort

        async def slow() -> None:
            await asyncio.sleep(0.05)
            await aborts()

        engines[1].abort = slow  # type: ignore[method-assign]
        asked = ask(pool, 3, tokens=100)  # two on engine 0, one on engine 1
        await asyncio.sleep(5 * TOKEN_S)
        repacking = asyncio.create_task(pool.repack())
        await asyncio.sleep(0)
        asked += ask(pool, 4, tokens=30, first=3)
        await repacking
        answers = await asyncio.gather(*asked)
        assert [len(one.ids) for one in answers] == [100] * 3 + [30] * 4
        assert len(engines[1].prompts) == 1


async def test_closing_ends_everything() -> None:
    async with pool_of(2) as (pool, engines):
        engines[0].broken_revivals = 100
        engines[0].die()
        await until(lambda: pool.counters()["engine/serving"] == 1)
        asked = ask(pool, 2, tokens=500)
        await asyncio.sleep(0.01)
        await pool.close()
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, EngineLost | EngineClosed)
        assert [one.acts[-1] for one in engines] == ["close", "close"]
        with pytest.raises(EngineClosed):
            await pool.generate([5], Sampling(max_tokens=1))


@pytest.mark.slow
async def test_processes_killed_in_the_middle_of_answers_change_no_token(tmp_path: Path) -> None:
    def model(seed: int) -> Any:
        return build_model(60, hidden=32, layers=2, heads=2, max_length=128, seed=seed).eval()

    write_shell(tmp_path, "", model(0))
    engines = [
        ProcessEngine(
            EngineSpec(folder=str(tmp_path)), name=f"engine {n}", log=tmp_path / f"log-{n}"
        )
        for n in range(2)
    ]
    pool, local = EnginePool(engines), LocalEngine(model(0))
    try:
        await asyncio.gather(*(one.revive() for one in engines))
        await pool.set_weights(MemoryWeights.of(model(1)), 1)
        await local.set_weights(MemoryWeights.of(model(1)), 1)
        sampling = [Sampling(max_tokens=110, seed=seed) for seed in range(24)]
        prompts = [[5, 6, 7, seed % 5] for seed in range(24)]
        whole = await asyncio.gather(*map(local.generate, prompts, sampling))
        asked = [
            asyncio.create_task(pool.generate(*one)) for one in zip(prompts, sampling, strict=True)
        ]
        await until(lambda: bool(pool.fleet.members[0].running))
        await asyncio.sleep(0.02)
        under_way = len(pool.fleet.members[0].running)
        os.kill(engines[0].pid, signal.SIGKILL)
        answers = await asyncio.wait_for(asyncio.gather(*asked), 60)
        assert [one.ids for one in answers] == [one.ids for one in whole]
        for mine, theirs in zip(answers, whole, strict=True):
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
        assert under_way > 0, "nothing was under way"
        # the one that comes back has the weights of now
        await pool.set_weights(MemoryWeights.of(model(2)), 2)
        async with asyncio.timeout(120):
            while pool.counters()["engine/serving"] < 2:
                await asyncio.sleep(0.05)
        await local.set_weights(MemoryWeights.of(model(2)), 2)
        expected_scores = await local.logprobs([5, 6, 7])
        for engine in engines:
            assert await engine.logprobs([5, 6, 7]) == pytest.approx(expected_scores, abs=1e-5)
            assert engine.version == 2
    finally:
        await pool.close()
        await local.close()
