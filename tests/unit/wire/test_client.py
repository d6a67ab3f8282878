"""What a client sends again, when, and when it gives up."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import msgspec
import pytest

from ludus.errors import (
    ConfigError,
    LudusError,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    ServerUnreachable,
    SessionGone,
)
from ludus.wire.client import Client, HttpRequest, HttpResponse, RetryPolicy, run_blocking
from ludus.wire.codec import Format, encode
from ludus.wire.faults import Fault, FaultReply, status_of


class Word(msgspec.Struct):
    word: str


@dataclass
class Script:
    """A transport that plays a script: a struct is a success, a fault its status, an error a lost
    connection. Time passes only by sleeping.
    """

    replies: list[msgspec.Struct | LudusError]
    sent: list[HttpRequest] = field(default_factory=list[HttpRequest])
    slept: list[float] = field(default_factory=list[float])

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        self.sent.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, LudusError):
            raise reply
        if isinstance(reply, Fault):
            data, format = encode(FaultReply(error=reply), Format.MSGPACK)
            return HttpResponse(status_of(reply), {"Content-Type": format}, data)
        data, format = encode(reply, Format.MSGPACK)
        return HttpResponse(200, {"Content-Type": format}, data)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def close(self) -> None: ...


def client(script: Script, **policy: float) -> Client:
    return Client("http://x/", script, policy=RetryPolicy(**policy), rng=random.Random(0))


def ask(made: Client) -> Word:
    return run_blocking(made.post("/v1/thing", Word("in"), Word))


def test_a_lost_connection_is_asked_again_with_the_same_bytes() -> None:
    script = Script([ServerUnreachable("cut"), ServerUnreachable("cut"), Word("out")])
    made = client(script)
    assert ask(made) == Word("out")
    assert script.sent[0] == script.sent[1] == script.sent[2]
    assert (made.traffic.requests, made.traffic.retries) == (3, 2)


def test_waits_double_are_jittered_and_bounded() -> None:
    script = Script([*(ServerUnreachable("cut") for _ in range(7)), Word("out")])
    ask(client(script, first_wait_s=0.1, max_wait_s=1.0))
    for waited, longest in zip(script.slept, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=True):
        assert longest / 2 <= waited <= longest


def test_retry_after_is_honoured() -> None:
    full = Fault(code="overloaded", message="full", retryable=True, retry_after_s=3.0)
    script = Script([full, Word("out")])
    ask(client(script))
    assert 3.0 <= script.slept[0] <= 4.5


def test_what_no_retry_can_help_is_raised_at_once() -> None:
    for code, kind in (("session_gone", SessionGone), ("invalid", RequestRejected)):
        script = Script([Fault(code=code, message="no")])
        with pytest.raises(kind):
            ask(client(script))
        assert len(script.sent) == 1


def test_the_last_error_is_told_when_the_time_is_over() -> None:
    full = Fault(code="overloaded", message="full", retryable=True, retry_after_s=9.0)
    with pytest.raises(Overloaded, match="full"):
        ask(client(Script([full]), timeout_s=5.0))


@pytest.mark.parametrize(("took_s", "told"), [(4.0, "cut"), (0.1, "late")])
def test_an_attempt_with_less_time_than_the_one_before_took_says_nothing_new(
    took_s: float, told: str
) -> None:
    async def attempt(limit_s: float) -> Word:
        raise RequestTimeout(f"late: not within {limit_s:g} s")

    made = client(Script([]), timeout_s=5.0)
    began = time.monotonic() - took_s
    with pytest.raises(LudusError, match=told):
        run_blocking(made.keep_trying(attempt, failed=ServerUnreachable("cut"), started=began))


def test_while_nobody_has_ever_answered_it_gives_up_sooner() -> None:
    cut = ServerUnreachable("nobody there")
    with pytest.raises(ServerUnreachable):
        ask(client(Script([cut, cut]), timeout_s=60.0, first_contact_s=0.01))
    script = Script([Word("out"), cut, cut, Word("out")])
    made = client(script, timeout_s=60.0, first_contact_s=0.01)
    assert ask(made) == ask(made) == Word("out")


def test_the_token_and_the_formats_are_in_the_headers() -> None:
    script = Script([Word("out")])
    made = client(script)
    made.token = "secret"
    ask(made)
    assert script.sent[0].headers == {
        "Accept": "application/msgpack",
        "Authorization": "Bearer secret",
        "Content-Type": "application/msgpack",
    }
    assert script.sent[0].url == "http://x/v1/thing"


def test_what_cannot_be_sent_is_refused_before_anything_is() -> None:
    script = Script([])
    with pytest.raises(ConfigError, match="cannot be sent"):
        run_blocking(client(script).post("/v1/thing", Word("\ud800"), Word))
    assert script.sent == []


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://127"):
        Client("localhost:8765", Script([]))
