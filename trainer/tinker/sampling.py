"""Answers of an engine to the Tinker API: stops by text, prompts' log-probabilities, seeds."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Sequence

from ludus.agent import Engine, Finish, Sampling
from ludus.agent.engine import Generation
from ludus.background import all_or_none
from ludus.errors import BrokenGeneration, ConfigError

from .models import BaseModel
from .wire import AskSamples, DrawSettings, SampledSequence, write_samples

SLICE = 16
"""How many tokens are sampled between two looks for a stop that is a text."""
MARGIN = 8
"""Tokens that are decoded before those in which a stop may begin: decoders drop a space that begins
a text, and bytes of a character that is cut.
"""
MAX_SAMPLES = 1024


def refuse_unserved(request: AskSamples) -> None:
    """Refuse what engines here do not compute.

    Raises:
        ConfigError: with the name of the field.
    """
    unserved = {
        "topk_prompt_logprobs": request.topk_prompt_logprobs,
        "topk_sample_logprobs": request.topk_sample_logprobs,
        "prompt_alt_tokens_k": request.prompt_alt_tokens_k,
        "target_prompt_logprobs": request.target_prompt_logprobs,
    }
    for name, value in unserved.items():
        if value:
            raise ConfigError(f"{name} is not served here; leave it out")
    if request.record_stability_info:
        raise ConfigError(
            "record_stability_info belongs to the loss stable_reinforce, which is not served: its "
            "formula is not published. Start the client with another loss_fn"
        )
    if any(chunk.type != "encoded_text" for chunk in request.prompt.chunks):
        raise ConfigError("prompts with images or audio are not sampled from here")
    if not 1 <= request.num_samples <= MAX_SAMPLES:
        raise ConfigError(f"num_samples must be 1 to {MAX_SAMPLES}, got {request.num_samples}")
    settings = request.sampling_params
    if not (math.isfinite(settings.temperature) and settings.temperature >= 0):
        raise ConfigError(f"temperature must be at least 0, got {settings.temperature}")
    if not 0 < settings.top_p <= 1:
        raise ConfigError(f"top_p must be above 0 and at most 1, got {settings.top_p}")
    # 0 is all tokens to some engines, and the likeliest alone to others.
    if settings.top_k != -1 and not 1 <= settings.top_k < 1 << 31:
        raise ConfigError(f"top_k must be -1, for all tokens, or a count, got {settings.top_k}")
    if (last := request.prompt_logprobs_last_n) is not None:
        if last < 1:
            raise ConfigError(f"prompt_logprobs_last_n must be at least 1, got {last}")
        if not request.prompt_logprobs:
            raise ConfigError("prompt_logprobs_last_n is of prompt_logprobs: ask for these too")
    if settings.max_tokens is not None and settings.max_tokens < 1:
        raise ConfigError(f"max_tokens must be at least 1, got {settings.max_tokens}")


async def answer(engine: Engine, base: BaseModel, request: AskSamples) -> bytes:
    """Sample what a request asks for, and return the encoded answer.

    Raises:
        ConfigError: the prompt is empty, too long, or has a token that does not exist.
        BrokenGeneration: the engine dropped the request.
    """
    ids = [token for chunk in request.prompt.chunks for token in chunk.tokens]
    vocabulary = int(base.model.config.get_text_config().vocab_size)
    if not ids or min(ids) < 0 or max(ids) >= vocabulary:
        raise ConfigError(f"a prompt needs tokens of 0 to {vocabulary - 1}")
    settings = request.sampling_params
    seed = secrets.randbits(31) if settings.seed is None else settings.seed
    budget = settings.max_tokens or max(1, engine.max_length - len(ids))
    if len(ids) + budget > engine.max_length:  # also where the answer comes in pieces
        raise ConfigError(
            f"{len(ids)} prompt tokens and {budget} to sample exceed the engine's "
            f"{engine.max_length}; shorten the prompt or lower max_tokens"
        )
    draws = [
        Sampling(
            max_tokens=budget,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            seed=seed_of(seed, number),
            stop_token_ids=stop_ids(settings, base),
        )
        for number in range(request.num_samples)
    ]
    texts = stop_texts(settings)
    samples = await all_or_none(draw(engine, base, ids, each, texts) for each in draws)
    return write_samples(samples, await prompt_logprobs(engine, ids, request))


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a sample: the first has that of its request, and the others have seeds
    that no request of a neighbouring seed has.
    """
    return random.Random(f"{seed}/{number}").getrandbits(63) if number else seed


async def prompt_logprobs(
    engine: Engine, ids: Sequence[int], request: AskSamples
) -> list[float] | None:
    """Return the log-probability of each token of a prompt, NaN where it is not computed; None if
    they were not asked for.
    """
    if not request.prompt_logprobs:
        return None
    last = request.prompt_logprobs_last_n or len(ids) - 1
    logprobs = await engine.logprobs(ids)
    first = max(1, len(ids) - last)  # nothing stands before the first token
    return [math.nan] * first + logprobs[first:]


def stop_ids(settings: DrawSettings, base: BaseModel) -> tuple[int, ...]:
    """Return the tokens that end an answer."""
    if settings.stop is None:
        return base.stop_ids
    if isinstance(settings.stop, str):
        return ()
    return tuple(stop for stop in settings.stop if isinstance(stop, int))


def stop_texts(settings: DrawSettings) -> list[str]:
    """Return the texts that end an answer.

    >>> stop_texts(DrawSettings(stop=[7, "END"]))
    ['END']
    """
    stops = [settings.stop] if isinstance(settings.stop, str) else settings.stop or []
    return [stop for stop in stops if isinstance(stop, str) and stop]


async def draw(
    engine: Engine, base: BaseModel, ids: Sequence[int], sampling: Sampling, texts: Sequence[str]
) -> SampledSequence:
    """Sample one answer, which ends with the token that completes one of `texts`, if any."""
    if not texts:
        whole = await sampled(engine, ids, sampling)
        return SampledSequence(whole.ids, whole.logprobs, whole.finish is Finish.STOP)
    # A text that a new token completes is in the last tokens, since each has at least a byte; those
    # before them are not decoded again and again.
    reach = max(len(text.encode()) for text in texts) + MARGIN
    decoded = base.tokenizer.decode
    tokens, logprobs = list[int](), list[float]()
    while len(tokens) < sampling.max_tokens:
        # Pieces of an answer are those of the whole one: `drawn` continues the random numbers.
        piece = await sampled(
            engine,
            [*ids, *tokens],
            replaced(sampling, len(tokens), sampling.max_tokens - len(tokens)),
        )
        before = len(tokens)
        tokens += piece.ids
        logprobs += piece.logprobs
        start = max(0, before - reach)
        if any(text in decoded(tokens[start:]) for text in texts):
            for end in range(before + 1, len(tokens) + 1):
                if any(text in decoded(tokens[:end]) for text in texts):
                    return SampledSequence(tokens[:end], logprobs[:end], stopped=True)
        if piece.finish is not Finish.LENGTH:
            return SampledSequence(tokens, logprobs, piece.finish is Finish.STOP)
    return SampledSequence(tokens, logprobs, stopped=False)


async def sampled(engine: Engine, ids: Sequence[int], sampling: Sampling) -> Generation:
    """Return what the engine samples.

    Raises:
        BrokenGeneration: the engine dropped the request: half an answer is not the policy's.
    """
    generation = await engine.generate(ids, sampling)
    if generation.finish is Finish.ABORT:
        raise BrokenGeneration("the engine dropped the request; send it again")
    return generation


def replaced(sampling: Sampling, drawn: int, left: int) -> Sampling:
    """Return the settings of the next piece of an answer."""
    return Sampling(
        max_tokens=min(SLICE, left),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        stop_token_ids=sampling.stop_token_ids,
        drawn=drawn,
    )
