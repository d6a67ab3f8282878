"""The server processes of `ludus serve --workers N`: started, started again, replaced in turns."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from io import FileIO
from types import FrameType

from ludus.errors import ConfigError, LudusError
from ludus.registry import imported
from ludus.secret import Secret

logger = logging.getLogger(__name__)
READY_TIMEOUT_S = 600.0
"""Seconds that a worker may take at the start until it listens."""
CLOSE_S = 20.0
"""Seconds that a worker has, after its drain, to close environments and processes before it is
killed.
"""
RESTART_AFTER_S = 0.5
"""Seconds before the first restart of a worker; doubled each time it dies young again."""
MAX_RESTART_AFTER_S = 30.0
"""The longest wait before a restart, in seconds."""
STABLE_S = 60.0
"""Seconds after which a worker that dies has not died young, so the wait starts over."""
POLL_S = 0.2
"""Seconds between two looks at whether the workers are alive, or ready."""
MAX_ADDRESS = 4096
"""The most bytes of an address; a worker writes it at once, and pipes take as much in one piece."""
WORKER_VARIABLE = "LUDUS_WORKER"
"""The environment variable set for worker processes: the descriptor to which a worker writes its
address once it listens. Such a process stops when its standard input closes, so no worker outlives
the process that started it.
"""


class ServerWorker:
    """A server process on a fixed port, through all restarts.

    Args:
        arguments: the words after `serve` on the command line.
        port: the port; 0 for one that the system chooses at the first start.
        token: the server's token, which the process gets in its environment.
    """

    def __init__(self, arguments: Sequence[str], port: int, token: Secret) -> None:
        self._arguments = without(arguments, ("workers", "port", "token"))
        self._token = token
        self.port = port
        self.url = ""
        self.started = 0.0
        self.restarts = 0
        self.next_start = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        """The running process; None while a restart is due."""
        self._address: FileIO | None = None
        """The end of a pipe from which the address of the process is read, without blocking."""

    def start(self) -> None:
        """Start the process; `ready` waits until the server listens."""
        own = ["--workers=1", f"--port={self.port}"]
        imports = [part for name in imported for part in ("--import", name)]
        # Without -P, `-m` would put the current folder on the import path, where a file of the user
        # may have the name of a module of the standard library.
        command = [sys.executable, "-P", "-m", "ludus", *imports, "serve"]
        command += [*self._arguments, *own]
        reading_end, writing_end = os.pipe()
        os.set_blocking(reading_end, False)
        self._address = FileIO(reading_end)
        environment = {**os.environ, WORKER_VARIABLE: str(writing_end)}
        if self._token:  # as a variable, since `ps` shows arguments to every user
            environment["LUDUS_TOKEN"] = self._token.reveal()
        self.started = time.monotonic()
        try:
            # The address has a pipe of its own, and what environments print goes to the log: a pipe
            # for stdout would fill up with it and block them, unless somebody read it all the time,
            # and on the stdout of this process it could cut the line with the addresses in two.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                env=environment,
                pass_fds=[writing_end],
                process_group=0,  # Ctrl-C reaches this process alone, which then ends the workers
            )
        finally:
            os.close(writing_end)

    def ready(self) -> None:
        """Wait for the address, and keep address and port: a restart must take the same port, also
        where the system chose the port.

        Raises:
            ConfigError: the process ended or took too long; the reason is on stderr.
        """
        assert self.process is not None
        assert self._address is not None
        deadline = self.started + READY_TIMEOUT_S
        # The end of the pipe tells nothing, since processes forked by user code may hold it open.
        while not (url := self._address.read(MAX_ADDRESS)):
            if (code := self.process.poll()) is not None:
                raise ConfigError(f"a worker could not start (exit code {code}); its log is above")
            if time.monotonic() > deadline:
                self.process.kill()
                raise ConfigError(
                    f"a worker was not ready within {READY_TIMEOUT_S:g} s; its log above may say "
                    "what it waited for"
                )
            time.sleep(POLL_S)
        self.url = url.decode()
        self.port = int(self.url.rpartition(":")[2])

    def close_pipes(self) -> None:
        """Close the pipes to a process that has ended."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self._address is not None:
            self._address.close()

    def restart_after_s(self) -> float:
        """Count a restart, and return the seconds to wait before: doubled each time the worker dies
        young.
        """
        if time.monotonic() - self.started > STABLE_S:
            self.restarts = 0
        self.restarts += 1
        # The exponent is bounded, because a float overflows after some 1,000 doublings.
        return min(MAX_RESTART_AFTER_S, RESTART_AFTER_S * 2.0 ** min(self.restarts - 1, 16))


class Workers:
    """Starts the workers, and starts each again that dies, until told to stop.

    SIGUSR2 replaces the workers one at a time: each drains, and the next follows once it is back.
    SIGHUP lets each read tokens, certificates and limits again.

    Args:
        workers: the workers, not started.
        announce: is called with their addresses once all listen.
        drain_s: reads how long a worker may drain, in seconds; called again at SIGHUP.
    """

    def __init__(
        self,
        workers: Sequence[ServerWorker],
        *,
        announce: Callable[[str], object],
        drain_s: Callable[[], float],
    ) -> None:
        self.workers = list(workers)
        self._announce = announce
        self._read_drain_s = drain_s
        self._drain_s = drain_s()
        self._signals = 0
        self._replace = False

    def run(self) -> int:
        """Serve until SIGINT or SIGTERM; returns 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR2, self._replace_all)
        signal.signal(signal.SIGHUP, self._reload)
        try:
            # All workers are started before the first is waited for, so that they load together.
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.ready()

            urls = ",".join(worker.url for worker in self.workers)
            self._announce(urls)
            while not self._signals:
                self._revive()
                if self._replace:
                    self._replace = False
                    self._replace_in_turns()
                time.sleep(POLL_S)
        finally:
            self._end([worker for worker in self.workers if worker.process is not None])
            for worker in self.workers:
                worker.close_pipes()
        return 0

    def _end(self, workers: Sequence[ServerWorker]) -> None:
        """Let workers drain and end; another signal makes that quick."""
        processes = [worker.process for worker in workers if worker.process is not None]
        signals, deadline = self._signals, time.monotonic() + self._drain_s + CLOSE_S
        for process in processes:
            process.terminate()
        while any(process.poll() is None for process in processes):
            if self._signals > signals:
                signals = self._signals
                for process in processes:
                    process.terminate()
            if time.monotonic() > deadline:
                for process in processes:
                    process.kill()
            time.sleep(POLL_S)

    def _replace_in_turns(self) -> None:
        for worker in self.workers:
            if self._signals or worker.process is None:
                continue
            self._end([worker])
            worker.close_pipes()
            worker.start()
            worker.ready()
            logger.info("worker %s was replaced", worker.url)

    def _reload(self, number: int, frame: FrameType | None) -> None:
        with suppress(LudusError):  # a mistake in the file is told by the workers
            self._drain_s = self._read_drain_s()
        for worker in self.workers:
            if worker.process is not None:
                worker.process.send_signal(signal.SIGHUP)

    def _replace_all(self, number: int, frame: FrameType | None) -> None:
        self._replace = True

    def _revive(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            process = worker.process
            if process is not None and process.poll() is not None:
                after_s = worker.restart_after_s()
                logger.error(
                    "worker %s ended with code %s; starting it again in %g s",
                    worker.url,
                    process.returncode,
                    after_s,
                )
                worker.close_pipes()
                worker.process, worker.next_start = None, now + after_s
            elif process is None and now >= worker.next_start:
                worker.start()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


def without(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Return a command line without the given flags and their values.

    >>> without(["maths", "--port", "80", "--workers=2", "--lease-s", "9"], ("port", "workers"))
    ['maths', '--lease-s', '9']
    """
    kept_words: list[str] = []
    is_value = False
    for word in arguments:
        flag, equals, _ = word.partition("=")
        if flag.startswith("--") and flag[2:] in flags:
            is_value = not equals
        elif is_value:
            is_value = False
        else:
            kept_words.append(word)
    return kept_words
