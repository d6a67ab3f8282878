"""Which passes are a rank's, what ranks send each other, and how they know of each other's end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ludus.agent import Episode
from ludus.errors import ConfigError, RankLost
from ludus.isolation.frames import Line, LineClosed
from ludus.trainer.config import RanksConfig, TrainConfig, TrainerConfig, VLLMConfig
from ludus.trainer.learning.experience import Experience
from ludus.trainer.models.loading import load_tokenizer
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.ranks.control import (
    SILENT_S,
    Address,
    Control,
    Follower,
    Lead,
    Order,
    RankMember,
)
from ludus.trainer.ranks.group import RankPlace, Ranks, place_of
from ludus.trainer.ranks.launch import open_ranks
from ludus.trainer.ranks.learner import ShardedLearner, refuse_unshared, shares
from ludus.trainer.ranks.sharding import whole
from ludus.trainer.ranks.shards import write_shards
from ludus.trainer.ranks.updater import decode, encode
from ludus.trainer.ranks.whole import ShardFiles
from ludus.trainer.rollout.batch import Row, pad, passes
from ludus.trainer.sft import negative_log_likelihood


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the process of the tests, which a rank would end. A loss is known before its timer is
    made, so that a test may be over first: whatever it has made is closed then, and ends nothing.
    """
    made: list[Control] = []
    begin = Control.__init__

    def begin_and_note(control: Control, members: Sequence[RankMember]) -> None:
        begin(control, members)
        made.append(control)

    def stay(control: Control) -> None:
        return

    monkeypatch.setattr(Control, "__init__", begin_and_note)
    monkeypatch.setattr(Control, "_exit", stay)
    yield
    for control in made:
        control.close()


MEMBERS = [RankMember(rank, "box", 100 + rank) for rank in range(3)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tokens", [1, 16, 40, 10_000])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 23])
def test_every_row_is_one_ranks_and_all_ranks_make_equally_many_passes(
    world: int, tokens: int, count: int
) -> None:
    lengths = torch.randint(2, 30, (30,), generator=torch.Generator().manual_seed(count))
    rows = torch.arange(30)[:count]
    turns = dealt(lengths, rows, tokens, world)
    assert all(len(turn) == world for turn in turns)
    parts = [part for turn in turns for part in turn if part is not None]
    assert sorted(row for part in parts for row in part.tolist()) == rows.tolist()
    for part in parts:
        assert len(part) == 1 or len(part) * int(lengths[part].max()) <= tokens
    # a filler stands only in the last turn
    assert all(part is not None for turn in turns[:-1] for part in turn)


def dealt(
    lengths: torch.Tensor,
    rows: torch.Tensor,
    tokens: int,
    world: int,
    together: torch.Tensor | None = None,
) -> list[list[torch.Tensor | None]]:
    return shares(
        lambda bound: passes(lengths, rows, bound, together),
        lambda part: len(part) * int(lengths[part].max()),
        tokens,
        world,
    )


@pytest.mark.parametrize("tokens", [2_000, 100_000])
def test_ranks_compute_about_equally_many_tokens(tokens: int) -> None:
    lengths = torch.randint(10, 400, (256,), generator=torch.Generator().manual_seed(0))
    turns = dealt(lengths, torch.arange(256), tokens, 4)
    parts = [[part for turn in turns if (part := turn[rank]) is not None] for rank in range(4)]
    counts = [sum(len(part) * int(lengths[part].max()) for part in mine) for mine in parts]
    assert max(counts) <= 1.15 * sum(counts) / 4


def test_rows_that_a_loss_compares_stay_together_on_a_rank() -> None:
    lengths, groups = torch.full((12,), 5), torch.arange(12) // 4
    turns = dealt(lengths, torch.arange(12), 10, 2, groups)
    parts = [part.tolist() for turn in turns for part in turn if part is not None]
    assert sorted(sorted(part) for part in parts) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_experience_survives_the_way_to_another_rank() -> None:
    batch = pad([Row([5, 6, 7], [0, 1, 1], [0.0, -1.5, -0.25]), Row([8, 9], [0, 1], [0.0, -2.0])])
    given = Experience(
        rewards=torch.tensor([1.0, 0.0]),
        groups=torch.tensor([0, 0]),
        truncated=torch.tensor([False, True]),
        excluded=torch.tensor([False, False]),
        rollouts=torch.tensor([0, 1]),
        batch=batch,
        turn_rewards=torch.zeros(2, 3),
        turns=torch.tensor([[-1, 0, 0], [-1, 0, -1]]),
        anchors=torch.zeros(1, 1, dtype=torch.long),
        turn_counts=torch.ones(1, dtype=torch.long),
        states=None,
        states_of=torch.empty(0, dtype=torch.long),
        tasks=("a", "b"),
        episodes=(Episode(task="a", index=3),),
    )
    back = decode(encode(given), Experience)
    for name in (
        "rewards",
        "groups",
        "truncated",
        "rollouts",
        "turn_rewards",
        "turns",
        "states_of",
    ):
        one, other = getattr(given, name), getattr(back, name)
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name
    assert torch.equal(back.batch.sampler_logp, batch.sampler_logp)
    assert (back.tasks, back.episodes, back.states) == (given.tasks, given.episodes, None)
    half = replace(given, rewards=torch.tensor([0.1, 0.2], dtype=torch.bfloat16))
    assert torch.equal(decode(encode(half), Experience).rewards, half.rewards)
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode({"rewards": 1}), Experience)
    with pytest.raises(TypeError, match="object"):
        encode(object())


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one' must be a number"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "two"},
            "LOCAL_WORLD_SIZE='two' must be a number",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR, MASTER_PORT is not set"),
        ({"RANK": "0"}, "RANK is set, and of RANK and WORLD_SIZE the other is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, and of RANK and WORLD_SIZE the other is not"),
        (
            {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            "RANK=2 is not among WORLD_SIZE=2",
        ),
    ],
)
def test_a_place_that_torchrun_does_not_give_is_refused(
    environment: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        place_of(environment)


def test_ranks_that_never_start_are_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    with pytest.raises(RankLost, match=r"rank 0 waited 1 s for all 2 ranks.*1/2 clients joined"):
        Ranks(RankPlace(rank=0, world=2, local_rank=0), timeout_s=1)


def test_a_port_that_another_run_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1 is taken"):
            Ranks(RankPlace(rank=0, world=2, local_rank=0), timeout_s=1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (lambda: RanksConfig(sequence=2), r"ranks\.sequence is 2, which is refused until"),
        (lambda: VLLMConfig(sleep=True), r"vllm\.sleep is True, which is refused until"),
        (lambda: VLLMConfig(arguments="--enable-sleep-mode"), r"vllm\.sleep is True"),
        (lambda: VLLMConfig(replay_experts=True), r"vllm\.replay_experts is True"),
    ],
)
def test_what_has_not_run_on_gpus_is_refused_by_name(
    settings: Callable[[], object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        settings()


def test_a_model_without_a_tokenizer_is_told_so(tmp_path: Path) -> None:
    build_model(40, hidden=16, layers=1, heads=2).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no tokenizer \(tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_world_that_divides_nothing_shares_all_rows_out() -> None:
    lengths = torch.full((10,), 7)
    turns = dealt(lengths, torch.arange(10), 14, 3)  # five passes for three ranks
    assert [sum(part is not None for part in turn) for turn in turns] == [3, 2]


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_is_tied_stays_tied_on_ranks_and_is_written_once(
    tied: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    model = build_model(40, hidden=16, layers=1, heads=2, tie_word_embeddings=tied)
    rows = pad([Row([3, 7, 9, 4], [0, 1, 1, 1], [0.0] * 4)])
    ranks = Ranks(RankPlace(rank=0, world=1, local_rank=0), timeout_s=20)
    try:
        learner = ShardedLearner(model, TrainerConfig(lr=1e-2), ranks=ranks)
        learner.update(rows, torch.arange(1), negative_log_likelihood)
        write_shards(tmp_path, learner, ranks)
        assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied
        published = [one.name for one in learner.source().metadata()]
        assert ("lm_head.weight" in published) is not tied
        held = ShardFiles(tmp_path).tensors()
        assert list(held) == published
        assert torch.equal(held["model.embed_tokens.weight"], whole(model.lm_head.weight)) is tied
    finally:
        ranks.close()


def test_without_torchrun_there_are_no_ranks_and_no_settings_of_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert place_of({}) is None
    with open_ranks(TrainConfig()) as ranks:
        assert ranks is None
    with (
        pytest.raises(ConfigError, match="torchrun --nproc_per_node"),
        open_ranks(TrainConfig(ranks=RanksConfig(offload=True))),
    ):
        pass
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(ConfigError, match=r"ranks\.timeout_s must be positive, got 0"):
        RanksConfig(timeout_s=0)


def test_what_ranks_cannot_do_is_refused() -> None:
    told = r"trainer\.kernels = 'liger' cannot be used with several ranks"
    with pytest.raises(ConfigError, match=told):
        refuse_unshared(TrainerConfig(kernels="liger"), torch.float32)
    with pytest.raises(ConfigError, match="half precision"):
        refuse_unshared(TrainerConfig(), torch.bfloat16)
    refuse_unshared(TrainerConfig(), torch.float32)


def connected(world: int = 3) -> tuple[Lead, list[Follower]]:
    lead = Lead(MEMBERS[:world], "127.0.0.1")
    waiting = threading.Thread(target=lead.accept)
    waiting.start()
    followers = [Follower(MEMBERS[:world], one, lead.address) for one in MEMBERS[1:world]]
    waiting.join(timeout=60)
    return lead, followers


def test_orders_reach_all_ranks_in_order_and_the_end_too() -> None:
    lead, followers = connected()
    for number in range(3):
        lead.send(Order("piece", {"first": number}))
    lead.close()
    for follower in followers:
        got = [follower.receive() for _ in range(4)]
        assert [None if one is None else one.arguments["first"] for one in got] == [0, 1, 2, None]
        follower.close()
        follower.refuse_lost(0.2)  # an end is no loss


def test_a_rank_0_that_exits_right_after_the_closing_order_is_no_loss() -> None:
    lead, (follower,) = connected(2)
    lead.send(Order("step"))
    lead.close()
    for line in lead._lines.values():  # pyright: ignore[reportPrivateUsage]
        line.sock.shutdown(socket.SHUT_RDWR)  # as the end of the process does
    time.sleep(0.2)  # the main thread of the other rank is still busy
    assert follower.receive() == Order("step")
    assert follower.receive() is None
    assert not follower.lost


def test_an_error_of_a_rank_ends_all_with_that_error() -> None:
    lead, (first, second) = connected()
    first.end("OutOfMemoryError: 3 GB")
    told = r"rank 1 \(host box, pid 101\) failed: OutOfMemoryError: 3 GB"
    with pytest.raises(RankLost, match=told):
        lead.refuse_lost(10)
    with pytest.raises(RankLost, match=told):
        second.receive()
    with pytest.raises(RankLost, match=told):
        lead.send(Order("step"))


def test_an_error_of_rank_0_ends_all_with_that_error() -> None:
    lead, followers = connected()
    lead.end("ConfigError: no such model")
    for follower in followers:
        with pytest.raises(RankLost, match=r"rank 0 .* failed: ConfigError: no such model"):
            follower.receive()


@pytest.mark.slow
def test_a_stranger_who_calls_does_not_take_a_ranks_place() -> None:
    lead = Lead(MEMBERS[:2], "127.0.0.1")
    waiting = threading.Thread(target=lead.accept)
    waiting.start()
    address = (lead.address.host, lead.address.port)
    with socket.create_connection(address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with socket.create_connection(address) as other:
            other.sendall(b"\xff\xff\xff\xff")
            wrong = Address(lead.address.host, lead.address.port, "guessed")
            Follower(MEMBERS[:2], MEMBERS[1], wrong)
            right = Follower(MEMBERS[:2], MEMBERS[1], lead.address)
            waiting.join(timeout=60)
    # A host that loses its power closes no connection.
    for line in (right._line, lead._lines[1]):
        assert line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        timeout_ms = line.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert timeout_ms == 1000 * SILENT_S
    lead.send(Order("step"))
    assert right.receive() == Order("step")
    lead.close()
    assert right.receive() is None


CALLER = """
import sys, time, msgspec
from ludus.trainer.ranks.control import Address, Control, Follower, RankMember
members = [RankMember(0, "box", 100), RankMember(1, "box", 101)]
address = msgspec.json.decode(sys.argv[1], type=Address)
Follower(members, members[1], address)
print("connected", flush=True)
time.sleep(60)
"""


def test_a_rank_that_is_killed_is_known_at_once_by_name() -> None:
    lead = Lead(MEMBERS[:2], "127.0.0.1")
    rank = subprocess.Popen(
        [sys.executable, "-c", CALLER, msgspec.json.encode(lead.address).decode()],
        stdout=subprocess.PIPE,
        text=True,
    )
    lead.accept()
    assert rank.stdout is not None
    assert rank.stdout.readline() == "connected\n"
    lead.refuse_lost()
    os.kill(rank.pid, signal.SIGKILL)
    with pytest.raises(RankLost, match=r"rank 1 \(host box, pid 101\) died"):
        lead.refuse_lost(60)
    rank.wait(timeout=60)
    rank.stdout.close()


LOSER = """
import sys, threading, time
from ludus.trainer.ranks import control
control.END_S = 0.3
members = [control.RankMember(0, "box", 100), control.RankMember(1, "box", 101)]
lead = control.Lead(members, "127.0.0.1")
waiting = threading.Thread(target=lead.accept)
waiting.start()
follower = control.Follower(members, members[1], lead.address)
waiting.join()
follower.end("MemoryError")
assert lead.loss(30) is not None
if sys.argv[1] == "closed":
    lead.close()
time.sleep(1 if sys.argv[1] == "closed" else 60)
print("here")
"""


@pytest.mark.parametrize(("left", "code", "said"), [("open", 1, ""), ("closed", 0, "here\n")])
def test_a_loss_ends_the_process_unless_the_run_is_closed(left: str, code: int, said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOSER, left], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (code, said), ran.stderr
    assert ran.stderr.endswith("rank 1 (host box, pid 101) failed: MemoryError; this rank ends\n")


@pytest.mark.slow
def test_models_that_are_served_on_ranks_are_those_of_one_process(
    start: Any, tmp_path: Path
) -> None:
    """Three models in turns (two adapters, a whole copy), refused passes, checkpoints read by ranks
    and by one process, and samplers of snapshots.
    """
    write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    started = start("served.py", 2, tmp_path)
    said = [rank.communicate(timeout=500)[0] for rank in started]
    assert [rank.returncode for rank in started] == [0, 0], "\n".join(said)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("moved") > 1e-3
    for name, difference in found.items():
        assert difference <= 1e-6, name


def test_a_frame_that_is_not_read_holds_up_no_other_beyond_its_deadline() -> None:
    here, there = socket.socketpair()
    writer = Line(here, 1 << 20)
    with here:
        with there:

            def send() -> None:
                with pytest.raises(ConnectionError):
                    writer.send(1, bytes(1 << 23))

            first = threading.Thread(target=send)
            first.start()
            time.sleep(0.2)
            with pytest.raises(TimeoutError):
                writer.send(1, b"", deadline=time.monotonic() + 0.2)
        first.join(20)
        assert not first.is_alive()


def test_nothing_follows_a_frame_that_was_sent_in_part() -> None:
    here, there = socket.socketpair()
    writer, reader = Line(here, 1 << 24), Line(there, 1 << 24)
    with here, there:
        with pytest.raises(TimeoutError):
            writer.send(1, bytes(1 << 23), deadline=time.monotonic() + 0.2)
        with pytest.raises(LineClosed, match="sent in part"):
            writer.send(1, b"the other side would take this for the rest")
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(LineClosed):
            reader.receive(deadline=time.monotonic() + 20)


def test_frames_of_two_threads_on_one_line_stay_whole() -> None:
    """The thread that waits for a rank's end tells the others while rank 0 gives an order."""
    here, there = socket.socketpair()
    writer, reader = Line(here, 1 << 21), Line(there, 1 << 21)
    with here, there:
        bodies = [bytes([number]) * (1 << 20) for number in range(2)]

        def send(body: bytes) -> None:
            for _ in range(10):
                writer.send(1, body)

        threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        got = [reader.receive(deadline=time.monotonic() + 60).body for _ in range(20)]
        for thread in threads:
            thread.join()
    assert sorted(got) == sorted(bodies * 10)


def test_who_sends_and_who_waits_on_one_line_have_no_time_limit_in_common() -> None:
    here, there = socket.socketpair()
    line = Line(here, 1 << 20)
    with here, there:
        line.send(1, b"", deadline=time.monotonic() + 20)
        assert here.gettimeout() is None  # else a reader that waits without a limit has that one
        with pytest.raises(TimeoutError):
            line.receive(deadline=time.monotonic() + 0.01)
        assert here.gettimeout() is None
        here.close()
        with pytest.raises(LineClosed):
            line.receive(deadline=time.monotonic() + 20)


STUCK = """
import socket, threading, time
from ludus.isolation.frames import Line
from ludus.trainer.ranks import control
from ludus.trainer.ranks.control import Lead, Order, RankHello, RankMember
control.END_S = 0.5
members = [RankMember(rank, "box", 100 + rank) for rank in range(3)]
lead = Lead(members, "127.0.0.1")
waiting = threading.Thread(target=lead.accept)
waiting.start()
ranks = [socket.create_connection((lead.address.host, lead.address.port)) for _ in members[1:]]
for member, rank in zip(members[1:], ranks):
    control._send(Line(rank, 1 << 20), RankHello(member, lead.address.token))
waiting.join()
def give_orders():
    while True:
        lead.send(Order("piece", {"text": "x" * 500_000}))
threading.Thread(target=give_orders, daemon=True).start()
def read():
    while ranks[0].recv(1 << 20):
        pass
threading.Thread(target=read, daemon=True).start()
time.sleep(1)  # rank 2 reads nothing, and its line is full
"""


def test_a_rank_that_reads_nothing_does_not_keep_this_one_from_its_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{STUCK}ranks[0].shutdown(socket.SHUT_RDWR)\ntime.sleep(60)\n"],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert ended.returncode == 1
    assert "rank 1 (host box, pid 101) died" in ended.stderr


@pytest.mark.parametrize("end", ["close()", "end('ValueError: the loss is not finite')"])
def test_a_rank_that_reads_nothing_holds_up_no_end_that_was_planned(end: str) -> None:
    code = f"{STUCK}begun = time.monotonic()\nlead.{end}\nprint(time.monotonic() - begun)\n"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert float(ended.stdout) < 10
