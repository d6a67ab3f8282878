"""The maths verifier: cheap pairs are decided at once in the caller, hard ones in a worker pool."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
from collections.abc import Awaitable, Generator
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from ludus.errors import ConfigError
from ludus.messages import Message
from ludus.rewards.pool import Fate, PoolLimits, PoolOutcome
from ludus.thoughts import AUTO, MARKS
from ludus.verdict import Verdict

from ..protocol import Sample
from .comparing.beside import misnamed, other_base, other_event, part_asked, turned_round
from .comparing.choices import listed
from .comparing.formulas import formula
from .comparing.question import MAX_PROMPT, assigned, bound_asked, side_asked
from .comparing.ways import apart, said_beside
from .conventions import Conventions, conventions
from .decision import BadGold, PairDecision, decide, no_answer
from .extracting.asides import without_asides
from .extracting.asked import Named, asked_value
from .extracting.asked_words import STATEMENTS, in_words, statements
from .extracting.candidate import Candidate, CandidateKind, Extraction
from .extracting.closing import listed_values
from .extracting.described import as_gain
from .extracting.extraction import extract, thoughts_end
from .extracting.golds import (
    boxed_apart,
    boxed_in_turn,
    parts,
    parts_labelled,
    unboxed,
    unmarked,
    values_of,
)
from .extracting.pipelines import PIPELINES
from .extracting.rows import lists_in_rows, parts_of, rows_of, values_by_case
from .extracting.sentence import CASES, closing_sentence
from .extracting.stance import Stance
from .extracting.surface import with_dollars, without_decoration, without_notes
from .extracting.verdicts import to_oneself, verdict
from .lanes import Lanes
from .proving.judge import NeedsPool
from .reading.locales import Locale
from .reading.reader import clean

_Deliberation = Generator[list[dict[str, object]], list[PoolOutcome], Verdict]
"""A generator of pool work: each `yield` hands over (gold, answer) requests and receives their
outcomes; the return value is the verdict. The synchronous and the asynchronous caller drive the
same generator.
"""
AROUND = 400
"""How many characters on each side of an answer tell its language."""
_OPEN = frozenset(
    {CandidateKind.FORMULA, CandidateKind.NUMBER, CandidateKind.WORD, CandidateKind.WHOLE, "none"}
)
"""The rules of answers without a mark, of which the question may pick another value."""
_LISTING = _OPEN | {CandidateKind.EMPHASIS}
"""The rules of answers that may be the last of several rows."""
_SAID = _LISTING | {CandidateKind.ANNOUNCED}
"""The rules of answers within sentences."""
_VERDICT = re.compile(r"(?:(?:the|a) )?(?:correct|right|true)(?: one| answer| option)?")
"""An announcement of an option that words name: `The second option is correct`."""
_COUNTED = re.compile(r"[^\W\d_][ -]\d+(?!\d)[^\d=$]*$")
"""A number behind words, which may be one of two of which the question makes a value: `1 chance in
6`.
"""
_COUNTS = re.compile(r"(?:\d+ ?[一-鿿぀-ヿ가-힣][^\d\n]*){2}")
"""A sentence in a script without articles that counts several."""
_UNMARKED = frozenset({CandidateKind.FORMULA, CandidateKind.NUMBER})
TARGET = "ludus.rewards.maths.worker:score"


class MathsVerifier:
    """Verifier of final answers in mathematics. Thread-safe and async-safe; uses no signals.

    `score` returns a Verdict at once when the pair can be decided cheaply (nearly always) and an
    awaitable only when the pair has to go to the pool, so that easy requests never wait for hard
    ones.

    Args:
        preset: "default", "strict" or "lenient" conventions; `options` override single ones.
        thinking: the marks around thoughts in a raw response; see `ludus.thoughts`.
        pipeline: extract as "math_verify", "prm800k", "dapo" or "gsm8k" do, to compare runs.
        timeout_s: CPU seconds for one hard pair; wall time is limited to ten times that.
        workers: pool processes (0: one per CPU, at most four).
        memory_mb: memory of a worker in MiB.
        pool: an existing pool to share; `close` then leaves the pool running.
        options: conventions by name, see `Conventions`.

    Raises:
        ConfigError: an unknown preset, option, kind of thinking or pipeline.
    """

    never_blocks = True
    """Tells a server to call `score` on its event loop directly: slow pairs go to the pool anyway.
    """

    def __init__(
        self,
        *,
        preset: str = "default",
        thinking: str = AUTO,
        pipeline: str = "",
        timeout_s: float = 1.0,
        workers: int = 0,
        memory_mb: int = 512,
        pool: Lanes | None = None,
        **options: Any,
    ) -> None:
        self.conventions = conventions(preset, **options)
        self.thinking = _check_known(thinking, set(MARKS), "thinking")
        self.pipeline = _check_known(pipeline, {"", *PIPELINES}, "pipeline")
        self.timeout_s = timeout_s
        self._owns_pool = pool is None
        self._pool = pool or Lanes(
            TARGET, PoolLimits(workers=workers, cpu_s=timeout_s, memory_bytes=memory_mb << 20)
        )

    def score(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Judge the final answer in `sample.text` against `sample.gold`, a text or a list of
        alternatives. `sample.prompt` is the question, if it is given.

        `sample.info["truncated"]` says that the response was cut off at the token limit.
        """
        golds = _golds(sample.gold)
        if isinstance(golds, Verdict):
            return golds
        settled = self._settle(
            golds, sample.text, _asked(sample.prompt), truncated=bool(sample.info.get("truncated"))
        )
        return settled if isinstance(settled, Verdict) else self._in_pool(settled)

    def verify(
        self, gold: str | list[str], response: str, *, prompt: str = "", truncated: bool = False
    ) -> Verdict:
        """Judge a response synchronously; blocks while the pool works on a hard pair."""
        golds = _golds(gold)
        if isinstance(golds, Verdict):
            return golds
        settled = self._settle(golds, response, prompt, truncated=truncated)
        if isinstance(settled, Verdict):
            return settled
        request = next(settled)
        try:
            while True:
                waiting = [self._pool.submit(pair, cpu_s=self.timeout_s) for pair in request]
                request = settled.send([future.result() for future in waiting])
        except StopIteration as stopped:
            return _returned(stopped)

    def extract(
        self, response: str, *, truncated: bool = False, several: bool = False, prompt: str = ""
    ) -> Extraction:
        """Return the answer that this verifier extracts from a response.

        Args:
            response: what the policy wrote.
            truncated: the response was cut off; an unfinished statement then does not count.
            several: the gold has several boxes, so that all boxes of the response are the answer.
            prompt: the question.
        """
        if self.pipeline:
            return PIPELINES[self.pipeline](response)
        return extract(
            response, thinking=self.thinking, truncated=truncated, several=several, prompt=prompt
        )

    def same(self, gold: str, answer: str) -> bool:
        """Return whether a bare answer (no response around the value) equals `gold`; an unreadable
        gold equals nothing.
        """
        try:
            return decide(gold, answer, self.conventions).equal
        except BadGold:
            return False
        except NeedsPool:
            outcome = self._pool.submit(self._request(gold, answer), cpu_s=self.timeout_s).result()
            return _verdict(outcome).reward == 1.0

    def trace(self, gold: str, answer: str) -> list[tuple[str, str]]:
        """Return (rule, finding) for every rule that was tried on a bare answer, in order."""
        try:
            return decide(gold, answer, self.conventions).trace
        except BadGold:
            return []
        except NeedsPool:
            request = self._request(gold, answer)
            value = self._pool.submit(request, cpu_s=self.timeout_s).result().value
            steps = value.get("trace", []) if isinstance(value, dict) else []
            return [
                ("pool", "the cheap steps leave the question open"),
                *((str(a), str(b)) for a, b in steps),
            ]

    def warm(self) -> None:
        """Start the pool now instead of at the first hard pair."""
        self._pool.warm()

    def close(self) -> None:
        """End the pool's processes, unless the pool was passed in by the caller."""
        if self._owns_pool:
            self._pool.close()

    def _picked(
        self, prompt: str, response: str, extraction: Extraction, golds: list[str]
    ) -> Extraction:
        """Return the extraction with the value that the question picks, or with the words that
        the response ends in where every gold is words; else as it was.
        """
        offset = 0 if self.pipeline else thoughts_end(response, self.thinking)
        value = asked_value(prompt, response[offset:]) if prompt else None
        options = {option.casefold() for option in listed(prompt).values()}
        if value is None and (all(map(_are_words, golds)) or options):
            value = in_words(prompt, response[offset:], options)
            is_known = extraction.text is None or all(map(_are_words, golds))
            if value and not is_known and value.value.casefold() not in options:
                value = None
        if value is None and all(STATEMENTS.fullmatch(unmarked(unboxed(gold))) for gold in golds):
            value = statements(response[offset:])
        return _moved(extraction, value.value, offset, value) if value else extraction

    def _verdict(self, response: str, extraction: Extraction) -> Extraction:
        """Return the extraction of the verdict that a response ends in, unless it takes another
        one back with it; else as it was.
        """
        start, end = closing_sentence(response)
        before = closing_sentence(response[:start])
        said, earlier = verdict(response[start:end]), verdict(response[slice(*before)])
        if not said or (earlier and earlier != said) or to_oneself(response[:start]):
            return extraction
        return Extraction(said, CandidateKind.WORD, start, end)

    def _listed(
        self, prompt: str, response: str, extraction: Extraction, golds: list[str]
    ) -> Extraction:
        """Return the extraction of all values that a response ends in, if a gold has as many."""
        offset = 0 if self.pipeline else thoughts_end(response, self.thinking)
        if lists := lists_in_rows(response[offset:]):
            return _moved(extraction, lists.text, offset, lists)
        said = values_of(extraction.text or "") if extraction.rule == CandidateKind.FORMULA else 1
        signed = {2 for gold in golds if "±" in gold or "\\pm" in gold}
        for count in ({values_of(gold) for gold in golds} | signed) - {1, said}:
            if several := listed_values(response[offset:], count, prompt):
                return _moved(extraction, several.text, offset, several)
        return extraction

    def _parted(
        self, prompt: str, response: str, extraction: Extraction, golds: list[str]
    ) -> Extraction:
        """Return the extraction of the answers of all parts, where the question and the response
        have as many labelled parts as a gold has values.
        """
        asked = len(set(_PART.findall(prompt))) if "(b)" in prompt or "(ii)" in prompt else 0
        said = extraction.text or ""
        wanted = {count for gold in golds for count in (values_of(gold), parts_labelled(gold))}
        if asked < 2 or asked not in wanted or (_PART.search(said) and "|" not in said):
            return extraction
        offset = 0 if self.pipeline else thoughts_end(response, self.thinking)
        body = response[offset:]
        candidate = rows_of(without_asides(body, prompt), asked) if "|" in body else None
        candidate = candidate or parts_of(body, asked, lambda part: self.extract(part).text)
        candidate = candidate or values_by_case(
            prompt, body, asked, lambda part: self.extract(part).text
        )
        if candidate is None or values_of(said) >= asked:
            return extraction
        moved = _moved(extraction, candidate.text, offset, candidate)
        return replace(moved, rule=str(candidate.kind), rivals=())

    def _found(
        self, golds: list[str], response: str, prompt: str, *, truncated: bool
    ) -> tuple[Extraction, str]:
        """Return the extraction of the value that the question picks among those of a response, and
        the response in the notation of formulas in which its places were found.
        """
        has_parts = any(parts(gold) > 1 or boxed_apart(gold, response) for gold in golds)
        extraction = self.extract(response, truncated=truncated, several=has_parts, prompt=prompt)
        if extraction.refused and Stance.EXAMPLE in extraction.reason and _ANY.search(prompt):
            claimed = _FOR_EXAMPLE.sub(lambda words: " " * len(words[0]), response)
            extraction = self.extract(
                claimed, truncated=truncated, several=has_parts, prompt=prompt
            )
        if extraction.rule == CandidateKind.BOX and (turn := boxed_in_turn(prompt, response)):
            extraction = replace(extraction, text=turn, rule="boxes", rivals=())
        offset = 0 if self.pipeline else thoughts_end(response, self.thinking)
        # The same places, in the notation of `surface`.
        response = without_notes(response[:offset] + with_dollars(response[offset:]))
        open_ended = extraction.rule in _SAID or extraction.text is None
        if open_ended and all(map(verdict, golds)) and not verdict(extraction.text or ""):
            extraction = self._verdict(response, extraction)
        if extraction.refused:
            by_case = "(ii)" in prompt and CASES.search(response)
            refused = self._parted(prompt, response, extraction, golds) if by_case else extraction
            return refused, response
        is_named = extraction.rule == CandidateKind.ANNOUNCED and _VERDICT.fullmatch(
            extraction.text or ""
        )
        is_listing = extraction.rule in _LISTING
        body = without_asides(response, prompt) if is_listing else response
        emphasis = extraction.text or "" if extraction.rule == CandidateKind.EMPHASIS else ""
        is_counted = ":" in emphasis or _COUNTED.search(emphasis)
        is_sentence = extraction.rule == CandidateKind.ANNOUNCED and _COUNTS.search(
            response, response.rfind("\n", 0, extraction.start) + 1, extraction.end
        )
        if is_named or is_counted or is_sentence or extraction.rule in _OPEN:
            extraction = self._picked(prompt, body, extraction, golds)
        whole = extraction
        if extraction.text is not None and not truncated:
            extraction = self._parted(prompt, response, extraction, golds)
        if extraction is whole and extraction.rule in _LISTING and not truncated:
            extraction = self._listed(prompt, body, extraction, golds)
        return extraction, response

    def _settle(
        self, golds: list[str], response: str, prompt: str, *, truncated: bool
    ) -> Verdict | _Deliberation:
        """Return a verdict, or the generator that reaches a verdict with the pool's help."""
        extraction, response = self._found(golds, response, prompt, truncated=truncated)
        if extraction.text is None:
            unreadable_gold = next(
                (verdict for gold in golds if (verdict := unreadable(gold)) is not None), None
            )
            return unreadable_gold or no_answer(extraction)
        answer = extraction.text
        around = response[max(0, extraction.start - AROUND) : extraction.end + AROUND]
        locale = Locale(prompt[:MAX_PROMPT], around)
        by_language = self.conventions.locale == "auto" and answer not in golds
        if by_language and extraction.rivals:
            extraction = replace(extraction, rivals=tuple(map(locale.answer, extraction.rivals)))
        if by_language and (uniform := locale.answer(answer)) != answer:
            answer = uniform
            extraction = replace(extraction, text=answer)
        if prompt:
            extraction = _as_asked(extraction, response, prompt, golds)
            answer = extraction.text or ""
        best = _NOTHING
        still_open: list[str] = []
        for gold in golds:
            try:
                wanted = locale.gold(gold) if by_language else gold
                decision = decide(wanted, answer, self.conventions, prompt=prompt)
                if decision.equal and (refused := _beside(extraction, response, prompt, gold)):
                    decision = PairDecision(False, *refused)
                best = _better(best, decision.verdict())
            except NeedsPool:
                still_open.append(gold)
            except BadGold as error:
                best = _better(best, Verdict.invalid(str(error)))
            if best.reward == 1.0:
                rivals = self._rivals(gold, extraction)
                if isinstance(rivals, Verdict):
                    return rivals
                return self._against_rivals(gold, extraction, rivals, best) if rivals else best
        return self._deliberate(still_open, extraction, best, prompt) if still_open else best

    def _rivals(self, gold: str, extraction: Extraction) -> Verdict | list[str]:
        """Return the rival answers that only the pool can compare with `gold`.

        A rival is another value claimed in the same breath as the answer. A rival that plainly
        differs from the gold yields the verdict of a contradiction at once.
        """
        unclear: list[str] = []
        for rival in extraction.rivals:
            try:
                if not self._agrees(gold, extraction, rival):
                    return _contradiction(rival)
            except NeedsPool:
                unclear.append(rival)
        return unclear

    def _agrees(self, gold: str, extraction: Extraction, rival: str) -> bool:
        """Return whether a value beside a right answer equals the gold or the answer, be it in
        another unit or rounded.

        Raises:
            NeedsPool: only the pool can tell.
        """
        unclear: NeedsPool | None = None
        for pair in _rivalling(gold, extraction, rival):
            try:
                if decide(*pair, self.conventions).equal:
                    return True
            except BadGold:
                continue
            except NeedsPool as error:
                unclear = error
        if unclear is not None:
            raise unclear
        return False

    def _deliberate(
        self, golds: list[str], extraction: Extraction, best: Verdict, prompt: str
    ) -> _Deliberation:
        """Compare the answer in the pool with the golds that the caller could not decide."""
        answer = extraction.text or ""
        outcomes = yield [self._request(gold, answer, prompt) for gold in golds]
        for gold, outcome in zip(golds, outcomes, strict=True):
            best = _better(best, _verdict(outcome))
            if best.reward == 1.0:
                rivals = self._rivals(gold, extraction)
                if isinstance(rivals, Verdict):
                    return rivals
                return (yield from self._against_rivals(gold, extraction, rivals, best))
        return best

    def _against_rivals(
        self, gold: str, extraction: Extraction, rivals: list[str], verdict: Verdict
    ) -> _Deliberation:
        """Return `verdict`, the one on a right answer, unless some rival is not shown to be
        equal.
        """
        for rival in rivals:
            outcomes = yield [self._request(*pair) for pair in _rivalling(gold, extraction, rival)]
            best = _NOTHING
            for outcome in outcomes:
                best = _better(best, _verdict(outcome))
            if best.reward is None:
                return best
            if best.reward < 1.0:
                return _contradiction(rival)
        return verdict

    async def _in_pool(self, deliberation: _Deliberation) -> Verdict:
        request = next(deliberation)
        try:
            while True:
                runs = [
                    asyncio.wrap_future(self._pool.submit(pair, cpu_s=self.timeout_s))
                    for pair in request
                ]
                request = deliberation.send(await asyncio.gather(*runs))
        except StopIteration as stopped:
            return _returned(stopped)

    def _request(self, gold: str, answer: str, prompt: str = "") -> dict[str, object]:
        # Tokenizers can produce lone surrogates, which UTF-8 cannot encode.
        texts = {"gold": gold, "answer": answer, "prompt": prompt}
        return {
            **{
                name: text.encode("utf-8", "backslashreplace").decode()
                for name, text in texts.items()
            },
            "conventions": asdict(self.conventions),
        }


def _moved(extraction: Extraction, text: str, offset: int, place: Named | Candidate) -> Extraction:
    """Return an extraction of another text, at a place of what follows the thoughts."""
    start, end, text = offset + place.start, offset + place.end, without_decoration(text)
    return replace(extraction, text=text, start=start, end=end, equation=False)


def _as_asked(extraction: Extraction, response: str, prompt: str, golds: list[str]) -> Extraction:
    """Return an extraction with the value that its question makes of what was said: a bound, the
    value of a name, a loss where the gain is asked.
    """
    if extraction.rule == CandidateKind.FORMULA:
        bound = bound_asked(prompt, extraction.text or "", golds)
        extraction = replace(extraction, text=bound)
    if extraction.rule in _UNMARKED and (value := assigned(prompt, response, extraction.start)):
        extraction = replace(extraction, text=value, equation=False)
    answer = extraction.text or ""
    if all(apart(gold)[1] for gold in golds) and not apart(answer)[1]:
        start = min(closing_sentence(response)[0], extraction.start)
        extraction = replace(extraction, text=f"{answer} {said_beside(response[start:])}".rstrip())
    before = response[max(0, extraction.start - 60) : extraction.start]
    gain = as_gain(prompt, before, extraction.text or "")
    return extraction if gain == extraction.text else replace(extraction, text=gain)


def _beside(
    extraction: Extraction, response: str, prompt: str, gold: str
) -> tuple[str, str] | None:
    """Return (rule, reason) why the words around an answer make it another value, or None."""
    answer = extraction.text or ""
    if extraction.equation and "=" not in gold and not side_asked(prompt, answer):
        return "relation", "the answer is an equation, whose right side is no answer"
    if not prompt:
        return None
    before = response[max(0, extraction.start - 60) : extraction.start]
    behind = response[extraction.end : extraction.end + 60]
    reason = (
        misnamed(prompt, before[-40:])
        or part_asked(prompt, before, behind)
        or other_event(prompt, before, answer)
        or turned_round(prompt, before, answer, behind)
        or ("_" not in answer and other_base(prompt, before, behind))
        or (
            _DENIED_EVENT.search(before)
            and not _ASKS_DENIED.search(prompt)
            and "the value is that of the event that does not happen"
        )
    )
    return ("form", reason) if reason else None


_PART = re.compile(r"\(([a-h]|i{1,3}|iv)\)")
_DENIED_EVENT = re.compile(
    r"\b(?:that|which|who)\b[^.;\n]{0,40}(?:\b(?:not|never)|n['’]t)\b[^.;\n]*\b(?:is|equals"
    r"|was)\W*$"
)
# A question with a negative prefix, or in another language, may ask for what does not happen.
_ASKS_DENIED = re.compile(
    r"(?i)\b(?:not|never|no|none|neither|without|fail\w*|exclud\w*|nor|cannot)\b|n['’]t\b|\b(?:un"
    r"|in)\w{4,}|[^\x00-\x7f]"
)


_ANY = re.compile(
    r"(?i)\b(?:find|give|write(?: down)?|name|provide|state|construct|exhibit) (?:an?|any|one)\b"
)
"""A question for one of many right answers, which is answered by an example."""
_FOR_EXAMPLE = re.compile(r"(?i)\be\.g\.|\bfor (?:example|instance)\b|\bsuch as\b")


def _asked(prompt: str | list[Message]) -> str:
    """Return the text of the question: of a conversation, the last message of the user."""
    if isinstance(prompt, str):
        return prompt
    questions = [message.text for message in prompt if message.role == "user"]
    return questions[-1] if questions else ""


def _rivalling(gold: str, extraction: Extraction, rival: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of which one has to be equal if a rival says the same as a right answer."""
    answer = extraction.said or extraction.text or ""
    return (gold, rival), (answer, rival), (rival, answer)


def _returned(stopped: StopIteration) -> Verdict:
    assert isinstance(stopped.value, Verdict)
    return stopped.value


def _contradiction(rival: str) -> Verdict:
    detail = f"contradicts itself: {rival[:80]!r} is claimed as well"
    return Verdict.of(0.0, detail, metrics={"rule/contradiction": 1.0})


def _check_known(name: str, names: set[str], kind: str) -> str:
    if name not in names:
        raise ConfigError(f"no {kind} named {name!r}; there are {', '.join(sorted(names - {''}))}")
    return name


_NOTHING = Verdict.of(0.0, "no gold")


def _are_words(gold: str) -> bool:
    """Return whether a gold is words without a number, and no yes or no, or a chemical formula."""
    said = unmarked(unboxed(gold).strip())
    return _WORDS_ALONE.fullmatch(said) is not None or (
        any(map(str.isupper, said)) and formula(clean(said)) is not None
    )


_WORDS_ALONE = re.compile(
    r"(?!(?i:yes|no|true|false|ja|nein|oui|non|s[ií]|sì|sim|não|да|нет)$)"
    r"(?:[^\W\d_]{2,}|[一-鿿])(?:[ '’-][^\W\d_]+){0,5}"
)


def _golds(gold: object) -> list[str] | Verdict:
    golds = gold if isinstance(gold, list) else [gold]
    texts = [str(value) for value in golds if isinstance(value, (str, int, float))]
    if not texts or len(texts) != len(golds):
        return Verdict.invalid(f"a gold is a text, a number or a list of those, got {gold!r:.80}")
    return texts


def unreadable(gold: str) -> Verdict | None:
    """Return the `invalid` verdict of a gold that cannot be read, else None."""
    try:
        decide(gold, "0", Conventions())
    except BadGold as error:
        return Verdict.invalid(str(error))
    except NeedsPool:
        pass
    return None


def _better(first: Verdict, second: Verdict) -> Verdict:
    """Choose the verdict that counts when an answer is held against two golds.

    A right answer counts first, then a failure: a failure must not turn into "not equal", since
    the answer may be right.
    """
    if first is _NOTHING or second.reward == 1.0:
        return second
    if first.reward == 1.0 or not first.ok:
        return first
    return second


def _verdict(outcome: PoolOutcome) -> Verdict:
    if outcome.fate is not Fate.DONE or not isinstance(outcome.value, dict):
        return outcome.failure()
    value = outcome.value
    if "bad_gold" in value:
        return Verdict.invalid(str(value["bad_gold"]))
    decision = PairDecision(
        bool(value["equal"]), str(value["rule"]), str(value["detail"]), bool(value["undecided"])
    )
    return decision.verdict(pooled=True)


class _Shared:
    """The worker pool behind the functions `verify` and `equivalent`: one per process, started
    lazily.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Lanes | None = None
        self._owner = 0

    def get(self) -> Lanes:
        """Return the pool of this process; a forked child gets a separate pool."""
        with self._lock:
            if self._pool is None or self._owner != os.getpid():
                self._pool, self._owner = Lanes(TARGET), os.getpid()
                atexit.register(self._pool.close)
            return self._pool


_shared = _Shared()


def verify(
    gold: str | list[str],
    response: str,
    *,
    prompt: str = "",
    timeout_s: float = 1.0,
    truncated: bool = False,
    thinking: str = AUTO,
    preset: str = "default",
    **options: Any,
) -> Verdict:
    r"""Score a response: 1.0 if the final answer equals a gold, else 0.0 with the reason in
    `detail`.

    Args:
        gold: the reference answer, or several alternatives.
        response: what the policy wrote.
        prompt: the question; an answer that only repeats a formula of it is not paid then.
        timeout_s: CPU seconds for a pair that cannot be decided cheaply.
        truncated: the response was cut off; an unfinished statement then does not count.
        thinking: the marks around thoughts in a raw response; see `ludus.thoughts`.
        preset: "default", "strict" or "lenient" conventions.
        options: conventions by name (docs/maths.md).

    >>> verify("1/2", r"so it is \\boxed{\\frac{2}{4}}").reward
    1.0
    """
    verifier = MathsVerifier(
        preset=preset, thinking=thinking, timeout_s=timeout_s, pool=_shared.get(), **options
    )
    return verifier.verify(gold, response, prompt=prompt, truncated=truncated)


def equivalent(a: str, b: str, *, timeout_s: float = 1.0) -> bool:
    """Return whether two answers are equal. The relation is symmetric: no rule that favours a gold
    applies.

    >>> equivalent("2^{n+1}-2", "2(2^n-1)")
    True
    """
    verifier = MathsVerifier(rounded_gold=False, timeout_s=timeout_s, pool=_shared.get())
    return any(verifier.same(first, second) for first, second in ((a, b), (b, a)))
