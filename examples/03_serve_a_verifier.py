"""Write a verifier, serve it in a process of its own, and score answers over HTTP.

python examples/03_serve_a_verifier.py                          does all of it
ludus --import examples/03_serve_a_verifier.py check example/json-keys
ludus --import examples/03_serve_a_verifier.py serve example/json-keys maths --port 8765
"""

from __future__ import annotations

import json
import subprocess
import sys

import ludus


@ludus.verifier("example/json-keys")
def json_keys(sample: ludus.Sample) -> ludus.Verdict:
    """The share of the gold's keys that the response, a JSON object, has.

    Who is at fault decides: an answer that is no JSON earns 0; a gold that is no list of keys is
    `invalid`, and earns nothing at all.
    """
    if not isinstance(sample.gold, list) or not sample.gold:
        return ludus.Verdict.invalid(f"the gold must be a list of keys, got {sample.gold!r:.80}")
    try:
        said = json.loads(sample.text)
    except (ValueError, RecursionError):
        return ludus.Verdict.of(0.0, "not JSON")
    if not isinstance(said, dict):
        return ludus.Verdict.of(0.0, "JSON, but no object")
    missing = [key for key in sample.gold if key not in said]
    return ludus.Verdict.of(1 - len(missing) / len(sample.gold), f"missing: {missing}")


SAMPLES = [
    ludus.Sample(response='{"name": "Ada", "age": 36}', gold=["name", "age"]),
    ludus.Sample(response='{"name": "Ada"}', gold=["name", "age"]),
    ludus.Sample(response="I would rather not.", gold=["name", "age"]),
    ludus.Sample(response="{}", gold="name"),
]


def main() -> None:
    """Serve this file's verifier on a free port and score the samples."""
    command = [sys.executable, "-m", "ludus", "--import", __file__, "serve", "example/json-keys"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]  # "serving ... at http://127.0.0.1:PORT"
            with ludus.connect(url) as connection:
                for sample in SAMPLES:
                    verdict = connection.score("example/json-keys", sample)
                    print(verdict.status, verdict.reward, verdict.detail)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
