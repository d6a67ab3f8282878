"""An engine in this process: batched sampling with a key-value cache, for CPU or a single GPU.

One thread owns the model. Requests join the running batch on arrival and leave when finished; a
prompt that several requests share is computed once; for the next turn of an episode, only the
new tokens are computed.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import msgspec
import torch

from ludus.agent import Finish, Generation, Sampling, WeightSource
from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError, LudusError, StaleWeights

from ..models.capacity import fitting_cache, fitting_prefill
from ..models.images import ImageReader
from ..models.loading import CausalLM
from ..models.mask_policy import MaskPolicy
from ..models.weights import checked, refuse_foreign
from .cached_model import CachedModel, MaskedModel, PrefixStore
from .requests import GenerationRequest, check_placed, deliver, fail, taken
from .running import RunningBatch
from .scoring import Scoring, score_rows

T = TypeVar("T")

ADMISSION_WAIT_S = 0.002
ADMISSION_ROUNDS = 20
"""How often an idle engine waits ADMISSION_WAIT_S for further requests before computing prompts, as
long as requests keep arriving.
"""


class EngineClosed(LudusError, RuntimeError):
    """The engine was closed, or the engine's thread has ended; no request is answered any more."""


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests and tokens a local engine computes and keeps at once."""

    max_rows: int = 256
    """The most requests in the batch at once; others wait."""
    max_length: int | None = None
    """The most tokens of prompt and answer; None, or more than the model has positions, uses the
    limit in the model's config.
    """
    kept_tokens: int | None = None
    """How many tokens of keys and values are kept between turns; None follows the model's size and
    the free memory.
    """
    prefill_tokens: int | None = None
    """The most padded prompt tokens in a forward pass; longer prompts are split. None follows the
    model's size and the free memory.
    """


DEFAULT_LIMITS = EngineLimits()


class LocalEngine:
    """Samples from a transformers causal LM with full attention.

    Args:
        model: the engine's own copy; its weights change only through `set_weights`.
        limits: how many requests and tokens are computed and kept at once.
        version: the version of the initial weights; a resumed run continues counting from there.
        images: reads the images of prompts; None for a model that reads none.
        keep_cache: whether running requests keep the keys and values of older weights when new
            weights arrive; otherwise these are computed again before the next token is sampled,
            and every later token is exactly the new policy's.
        float32_head: whether the head's product is computed in float32, with the weights as the
            engine holds them.
        mask: the masking policy, whose likeliest tokens alone are sampled; the log-probabilities
            are those over these tokens. No keys are kept between turns then.
    """

    def __init__(
        self,
        model: CausalLM,
        limits: EngineLimits = DEFAULT_LIMITS,
        *,
        version: int = 0,
        images: ImageReader | None = None,
        keep_cache: bool = False,
        float32_head: bool = False,
        mask: MaskPolicy | None = None,
    ) -> None:
        config = model.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ConfigError(
                f"the local engine knows full attention only, this model has {sorted(kinds)}; use "
                "--engine vllm"
            )
        self.model = model.eval()
        self.max_rows = limits.max_rows
        positions = int(config.max_position_embeddings)
        self._max_length = min(limits.max_length or positions, positions)
        self.images = images
        self.keep_cache = keep_cache
        prefill = limits.prefill_tokens or fitting_prefill(self.model)
        kept = fitting_cache(self.model) if limits.kept_tokens is None else limits.kept_tokens
        self._batch = RunningBatch(
            CachedModel(self.model, prefill, images, float32_head=float32_head)
            if mask is None
            else MaskedModel(self.model, prefill, mask, images, float32_head=float32_head),
            PrefixStore(kept if mask is None else 0),
            version,
        )
        self._torn = ""
        """Why the weights are a mixture of two versions; empty while they are not."""
        self._arrived: list[GenerationRequest] = []
        """Requests that left the queue and are not in the batch yet."""
        self._waiting: queue.SimpleQueue[GenerationRequest] = queue.SimpleQueue()
        self._unscored: queue.SimpleQueue[Scoring] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._job: Future[Any] | None = None
        """The job that the thread is running; `close` fails this job if the thread hangs in it."""
        self._gate = threading.Lock()  # nothing is queued once `_closed` is set
        self._wake = threading.Event()
        self._running = threading.Event()  # cleared by `pause`
        self._running.set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ludus-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The version of the current weights."""
        return self._batch.version

    @property
    def sampled_tokens(self) -> int:
        """How many tokens were sampled so far."""
        return self._batch.sampled_tokens

    @property
    def computed_prompt_tokens(self) -> int:
        """How many tokens of prompts were computed so far; kept prefixes are not computed again."""
        return self._batch.computed_prompt_tokens

    @property
    def recomputed_tokens(self) -> int:
        """How many tokens of running requests were computed again after new weights."""
        return self._batch.recomputed_tokens

    @property
    def passes(self) -> int:
        """How many forward passes were made so far for prompts and sampled tokens."""
        return self._batch.cached.passes

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together."""
        return self._max_length

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`; see `Engine.generate`."""
        if not ids:
            raise ConfigError("cannot continue an empty prompt; give at least one token")
        if sampling.schema:
            raise ConfigError("this engine cannot hold an answer to a schema; vLLM can")
        if len(ids) + sampling.max_tokens > self._max_length:
            raise ConfigError(
                f"{len(ids)} prompt tokens and {sampling.max_tokens} to sample exceed the engine's "
                f"{self._max_length}; shorten the prompt or lower max_tokens"
            )
        self._refuse_misplaced(ids, images)
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        rng = random.Random(sampling.seed)
        # Each sampled token takes one number. An answer that begins on another engine and continues
        # here skips the numbers that were used there (decision 0704).
        for _ in range(sampling.drawn):
            rng.random()
        request = GenerationRequest(
            list(ids), sampling, future, rng, len(ids), images=tuple(images)
        )
        self._submit(self._waiting, request)
        return await future

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each id at temperature 1; the first is 0."""
        if len(ids) > self._max_length:
            raise ConfigError(f"{len(ids)} tokens exceed the engine's {self._max_length}")
        self._refuse_misplaced(ids, images)
        row = Scoring(list(ids), tuple(images))
        self._unscored.put(row)
        await self._on_thread(self._score_waiting)
        return row.result()

    def _refuse_misplaced(self, ids: Sequence[int], images: Sequence[PlacedImage]) -> None:
        if images and self.images is None:
            raise ConfigError("a prompt shows images, and the model of this engine reads none")
        if images and self.images is not None:
            check_placed(ids, images, self.images.token_id)

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Copy new weights in. Running requests continue with the new weights, and kept prefixes
        are dropped.

        Raises:
            WeightsRefused: the weights are not those of this model; nothing has changed. If the
                source breaks off later, the engine's weights are a mixture, and every request
                fails with `StaleWeights` until weights have been set in full.
        """
        await self._on_thread(lambda: self._copy_weights(source, version))

    async def pause(self) -> None:
        """Stop sampling until `resume`; requests wait."""
        self._running.clear()

    async def resume(self) -> None:
        """Continue the sampling that `pause` stopped."""
        self._running.set()
        self._wake.set()

    async def abort(self) -> None:
        """Answer every request with the tokens sampled so far."""
        await self._on_thread(self._abort)

    async def close(self, wait_s: float = 10.0) -> None:
        """Stop the thread and abort running requests.

        A forward pass that takes longer than `wait_s` is left to the thread, and every waiting
        caller gets an `EngineClosed`.
        """
        with self._gate:
            self._closed = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, wait_s)
        if self._thread.is_alive():
            self._give_up(EngineClosed(f"the engine was closed and did not stop in {wait_s} s"))

    async def _on_thread(self, job: Callable[[], T]) -> T:
        future: Future[Any] = Future()
        self._submit(self._jobs, (job, future))
        result: T = await asyncio.wrap_future(future)
        return result

    def _submit(self, pending: queue.SimpleQueue[T], item: T) -> None:
        with self._gate:
            # The check needs the gate, because nobody would ever answer a request that is queued
            # after the thread has emptied the queues for the last time.
            if self._closed or not self._thread.is_alive():
                raise EngineClosed("the engine is closed and answers nothing; build a new one")
            pending.put(item)
        self._wake.set()

    # --- the engine's thread --------------------------------------------------

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while not self._closed:
                    self._run_jobs()
                    if not self._running.is_set() or not (
                        self._batch.active or not self._waiting.empty()
                    ):
                        # A wake-up between this wait and the next line is lost, hence the bound.
                        self._wake.wait(0.1)
                        self._wake.clear()
                        continue
                    try:
                        self._tick()
                    except Exception as error:
                        self._fail_all(error)
        finally:
            with self._gate:
                self._closed = True
            # Requests for text end with the tokens they have; only jobs are left without an answer.
            self._abort()
            self._give_up(EngineClosed("the engine was closed before it began this call"))

    def _tick(self) -> None:
        # New requests stay in `_arrived` until their first pass has succeeded: if the pass fails,
        # `_fail_all` finds them there.
        room = self.max_rows - len(self._batch.active)
        if not self._batch.active:
            for _ in range(ADMISSION_ROUNDS):
                waiting = self._waiting.qsize()
                time.sleep(ADMISSION_WAIT_S)
                if self._waiting.qsize() == waiting:
                    break
        wanted = (request for request in taken(self._waiting) if not request.future.cancelled())
        self._arrived = list(islice(wanted, room))
        # This error is raised after the arrivals were taken, so that they fail at once too.
        if self._torn:
            raise StaleWeights(self._torn)
        if not self.keep_cache:
            self._batch.recompute()
        if self._arrived:
            self._batch.admit(self._arrived)
        self._arrived = []
        if self._batch.active:
            self._batch.decode()

    def _run_jobs(self) -> None:
        for job, future in taken(self._jobs):
            if not future.set_running_or_notify_cancel():
                continue
            self._job = future
            try:
                result = job()
            except Exception as error:
                fail(future, error)
            else:
                with suppress(InvalidStateError):  # `close` has set an error meanwhile
                    future.set_result(result)
            self._job = None

    def _score_waiting(self) -> None:
        """Score every row that waits in one go. Each caller queues this job, so the first job finds
        the rows of all callers, and the others find nothing left to do.
        """
        rows = list(taken(self._unscored))
        if self._torn:
            for row in rows:
                row.error = StaleWeights(self._torn)
            return
        prefill_tokens = self._batch.cached.prefill_tokens
        head = self._batch.cached.head
        score_rows(self.model, rows, head=head, max_tokens=prefill_tokens, reader=self.images)

    def _copy_weights(self, source: WeightSource, version: int) -> None:
        refuse_foreign(source, self.model)
        parameters = dict(self.model.named_parameters())
        # Drop old keys before the first copy: a copy that fails half way must leave none behind.
        self._batch.outdate()
        self._torn = (
            f"the engine's weights are a mixture: publishing version {version} broke off; publish "
            "again before anything is sampled"
        )
        try:
            for name, tensor in checked(source):
                parameters[name].copy_(tensor)
        except Exception:
            self._fail_all(StaleWeights(self._torn))  # nobody goes on with a mixture of weights
            raise
        self._torn, self._batch.version = "", version

    def _abort(self) -> None:
        everyone = [*taken(self._waiting), *self._arrived, *self._batch.active]
        self._arrived, self._batch.active = [], []
        deliver([(request, request.answer(Finish.ABORT)) for request in everyone])

    def _fail_all(self, error: Exception) -> None:
        """Pass an unexpected error to all requests in the batch or joining, so that no request
        hangs.
        """
        failed = [*self._arrived, *self._batch.active]
        self._arrived, self._batch.active = [], []
        deliver([(request, error) for request in failed])

    def _give_up(self, error: Exception) -> None:
        """Pass `error` to every waiting caller."""
        self._fail_all(error)
        deliver([(request, error) for request in taken(self._waiting)])
        for future in [*(future for _, future in taken(self._jobs)), self._job]:
            if future is not None:
                fail(future, error)
