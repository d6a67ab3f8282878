"""The `ludus` command: finds and runs the verb, and reports an error in a single line.

A verb is a module of this folder with `main(arguments) -> int`, imported when it is asked for, so
that `ludus --help` and the serving verbs never pay for torch.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence

from ludus.contract import where
from ludus.errors import CheckFailed, ConfigError, LudusError, UnknownName
from ludus.registry import imported

from .loading import import_user_code

GROUPS: dict[str, dict[str, str]] = {
    "register an environment": {
        "new": "write a package with an environment or a verifier of your own",
        "list": "environments and verifiers, with what they need",
        "env": "install and remove environments of other projects",
        "check": "hold an environment or a verifier to its contract",
        "audit": "attack an environment or a verifier, and say what that earns",
        "play": "play an environment yourself, in the terminal",
        "mcp": "serve an environment to MCP clients",
    },
    "serve verifiers and environments": {
        "serve": "serve environments and verifiers over HTTP",
        "bench": "load a server, and say what it bears",
        "score": "score answers with a verifier",
        "rescore": "score recorded episodes with another reward, and compare",
        "check-judge": "measure how wrong a judge is, and print its card",
        "mock-judge": "serve a deterministic judge, for tests and CI",
        "retriever": "serve a corpus to search in, in Search-R1's protocol",
        "sandbox": "run code in the sandbox, and say which isolation there is",
    },
    "train and evaluate a policy": {
        "demo": "serve an environment, train against it, write a report",
        "demo-real": "train released weights by RL, compare before and after",
        "sft": "supervised training on demonstrations or data",
        "train": "reinforcement learning, preferences, reward models",
        "plan": "memory, speed and the best split of GPUs for a run, before it",
        "sweep": "train recipes over seeds, tuned on other seeds, and compare them",
        "eval": "measure a policy on an environment",
        "gateway": "serve a policy to agents that call it as a model",
        "recipes": "the training recipes, and what each one sets",
        "model": "fetch a released model, or probe a chat template",
    },
    "data and labels": {
        "tasks": "make a task set of questions with answers",
        "label": "let people compare, rank and rate answers on a local page",
    },
    "look into runs": {
        "watch": "a live page of runs: findings, metrics, timeline, episodes",
        "explain": "how a training run stands, why, and what to do",
        "accounts": "what became of every rollout of a training run",
        "compare": "compare recipes over seeds",
        "export": "write a run for pandas, datasets, TRL and others",
        "view": "show episodes as a page that opens from the file",
    },
    "this machine": {
        "doctor": "what this machine can do, and how to get the rest",
        "completion": "completion of verbs and names for bash, zsh or fish",
    },
}
"""The jobs that people come for, each with its verbs and what they do. The function of a verb is
`main` of `ludus.cli.<verb>`, except for the verbs in `_PLACES`.
"""
VERBS = {verb: summary for verbs in GROUPS.values() for verb, summary in verbs.items()}

_PLACES = {
    "list": "listing",
    "eval": "evaluate",
    "mock-judge": "judges:main_mock",
    "demo-real": "demo:main_real",
    "check-judge": "judges:main_check",
    "sft": "train:main_sft",
}

EXAMPLES = """\
examples:
  ludus list
  ludus play ludus/arithmetic-v0
  ludus serve ludus/arithmetic-v0 maths
  ludus train grpo --env ludus/arithmetic-v0
  ludus --import my_envs.py check me/echo-v0

A name with -vN is an environment, a bare name is a verifier."""


REMEDIES = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EACCES: "see who may read and write there (ls -l)",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: "free space there, or name another place",
    errno.EDQUOT: "free some of your quota there, or name another place",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other processes on this machine",
}
"""What to do about an error of the machine, which is none of ludus."""
OF_PATHS = {
    **REMEDIES,
    errno.ENOENT: "see whether the path is right",
    errno.ENOTDIR: "see whether the path is right",
    errno.EISDIR: "name a file",
}
"""From an error number of a path to the advice that ends the message."""


class UnknownVerb(UnknownName):
    """The command line names a verb that `ludus` does not have."""

    kind = "verb"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, which by default is that of this process.

    Returns:
        the exit status: 0; 1 where a check failed, or code of the user exits with a text; 2 where
        the request cannot be served; 130 after Ctrl-C.
    """
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as stop:  # `ludus VERB --help`, or code of the user
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)  # as Python does where nobody catches it
        return 1
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader, such as `| head`, has gone
        # The interpreter flushes stdout as it exits and would meet the broken pipe again, so stdout
        # is pointed at nothing first.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("LUDUS_DEBUG") == "1":
            raise
        # The first error of a task group is the cause of the others, which were cancelled for it.
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, CheckFailed):
            _complain(f"check failed: {error}")
            return 1
        message = str(error)
        if isinstance(error, OSError) and error.errno in REMEDIES:
            place = f": {error.filename!r:.200}" if error.filename is not None else ""
            message = f"{error.strerror}{place}; {REMEDIES[error.errno]}"
        elif isinstance(error, LudusError) and isinstance(cause := error.__cause__, OSError):
            message = "; ".join(filter(None, (message, OF_PATHS.get(cause.errno or 0))))
        elif not isinstance(error, LudusError):
            message = (
                f"unexpected {type(error).__name__}: {error} ({where(error)}; "
                "set LUDUS_DEBUG=1 for the traceback)"
            )
        _complain(message)
        return 2


def _dispatch(arguments: list[str]) -> int:
    imported.clear()  # what another command line of this process named
    while arguments and arguments[0] == "--import":
        if len(arguments) < 2:
            raise ConfigError("--import needs a Python file or module")
        import_user_code(arguments[1])
        arguments = arguments[2:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if arguments[0] in ("-V", "--version"):
        from ludus import __version__

        print(f"ludus {__version__}")
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        raise UnknownVerb.near(verb, VERBS, hint="ludus --help")
    module, _, function = _PLACES.get(verb, verb).partition(":")
    run = getattr(importlib.import_module(f"ludus.cli.{module}"), function or "main")
    code: int = run(arguments[1:])
    return code


def help_text() -> str:
    """Write the text of `ludus --help`: the verbs, the options and examples."""
    width = max(map(len, VERBS))
    groups = [
        "\n".join([f"{job}:", *(f"  {verb:<{width}}  {text}" for verb, text in verbs.items())])
        for job, verbs in GROUPS.items()
    ]
    verbs = "\n\n".join(groups)
    return (
        "usage: ludus [--import FILE_OR_MODULE] VERB ...\n\n"
        "Text environments, reward verifiers and a multi-turn RL trainer.\n\n"
        f"{verbs}\n\nludus VERB --help says more.\n\n"
        "options:\n"
        "  --import FILE_OR_MODULE  run your code first, so that what it registers is known\n"
        "  --version                the version\n\n"
        f"{EXAMPLES}"
    )


def _complain(message: str) -> None:
    line = " ".join(message.split())
    print(f"ludus: {line}", file=sys.stderr)
