"""The options that every judge takes: the server to ask, and the bounds of the calls."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack, cast

from ludus.errors import ConfigError
from ludus.llm.limits import TokenBudget

from .caller import JudgeCaller, JudgeServer
from .card import read_card
from .prompt import special_tokens
from .store import JudgementStore


class JudgeSettings(TypedDict, total=False):
    """Options of a judge's server; `base_url` and `model` are needed, the others have defaults."""

    base_url: str
    """Address of an OpenAI-compatible server, up to and with `/v1`."""
    model: str
    """Name of the model on that server."""
    temperature: float
    """0, the default, makes judgements repeatable where the server is."""
    max_tokens: int
    """Most tokens of one answer; 512 by default."""
    guided: bool
    """Send a JSON schema as `response_format` (the default); servers that refuse it need false."""
    concurrency: int
    """Most calls of this judge in flight; 64 by default. All judges of a process together are
    bounded by LUDUS_MAX_CALLS and LUDUS_MAX_CALLS_PER_HOST too (1024 and 256)."""
    deadline_s: float
    """Seconds for one question with its retries and its repair; 120 by default."""
    cache: str
    """SQLite file of judgements; the default "" keeps them in memory."""
    max_total_tokens: int
    """Hard stop for prompts and answers together; the default 0 sets none."""
    api_key: str | None
    """Key of the server, best as env:NAME; the default None reads LUDUS_API_KEY."""
    tokenizer: str
    """`tokenizer.json` or `tokenizer_config.json` of the model, or their folder: its special tokens
    are then broken in quoted texts, words too. The default "" breaks the marks of all families.
    """
    card: str
    """File that `ludus check-judge --out` wrote: the measured error of this judge, which reports
    of runs then show."""


def open_judge(**settings: Unpack[JudgeSettings]) -> JudgeCaller:
    """Open a caller of the judge that `settings` describe.

    Raises:
        ConfigError: no address or model, a bound that cannot work, a file that cannot be used, or a
            card of another model.
        TypeError: an option that no judge takes.
    """
    options = dict(settings)
    cache, tokens, api_key, card, tokenizer = (
        options.pop(name, None)
        for name in ("cache", "max_total_tokens", "api_key", "card", "tokenizer")
    )
    if not options.get("base_url") or not options.get("model"):
        raise ConfigError(
            "a judge needs base_url and model, such as base_url=http://127.0.0.1:8000/v1 and "
            "model=my-judge; 'ludus mock-judge' serves one to try"
        )
    server = JudgeServer(**cast("dict[str, Any]", options))
    return JudgeCaller(
        server,
        JudgementStore(str(cache or ":memory:")),
        TokenBudget(int(str(tokens))) if tokens else None,
        None if api_key is None else str(api_key),
        card=read_card(str(card), model=server.model) if card else None,
        special=special_tokens(str(tokenizer)) if tokenizer else (),
    )
