"""Plays TextArena: word games for a single player or several.

The policy plays one seat. The other seats are played by a simple opponent here, or each by a policy
of its own (`ludus.envs.outside.Match`), with `seat` -1: then every answer says whose turn it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import re
from importlib import metadata
from typing import Any

from ..contract import PeerRefusal, as_reward, as_text, refuse_unknown

READS = [place for place in os.environ.get("NLTK_DATA", "").split(os.pathsep) if place]
MAX_PLAYERS = 15
MAX_OPPONENT_MOVES = 2000
"""The most moves of opponents between two of the policy's."""
MAX_BEGINNINGS = 50
INVALID_MOVE = -1.0
_STRIDE = 0x9E37_79B1
_FAMILY = re.compile(r"(.+?)-v\d+(?:-(.+))?$")
_SHOWN = re.compile(r"\[[^\[\]\n]{1,40}\]")
_NAMES = re.compile(r"\[(?:GAME|Player.*|You|.*Player \d+)\]$", re.IGNORECASE)
_WRAPPED = ("-raw", "-train")


def load(settings: dict[str, Any]) -> dict[str, Any]:
    """Import the package."""
    importlib.import_module("textarena")
    return {"version": metadata.version("textarena")}


def make(family: str, settings: dict[str, Any]) -> ArenaGame:
    """Return the environment of a game."""
    return ArenaGame(family, settings)


def variants() -> dict[str, dict[str, str]]:
    """Return the peer's ids by family and variant, without ids that differ in wrappers alone."""
    families: dict[str, dict[str, str]] = {}
    registered: dict[str, Any] = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
    for name in registered:
        parts = _FAMILY.match(name)
        if parts is not None and not name.endswith(_WRAPPED):
            families.setdefault(parts[1], {})[parts[2] or ""] = name
    return families


def catalogue() -> dict[str, Any]:
    """Return all games, each with the possible numbers of players and what the game needs."""
    families: list[dict[str, Any]] = []
    for name, ids in sorted(variants().items()):
        family: dict[str, Any] = {"name": name}
        if list(ids) != [""]:
            family["variants"] = sorted(ids)
        players, error = _players(next(iter(ids.values())))
        if players:
            topic = "one player" if players[0] == 1 else "two players"
            family |= {"topic": topic if players[0] < 3 else "more players"}
            family["players"] = [min(players), max(players)]
        else:
            family |= _lack(error)
        families.append(family)
    version = metadata.version("textarena")
    return {"package": "textarena", "version": version, "families": families}


def _players(peer_id: str) -> tuple[list[int], BaseException]:
    counts, last = list[int](), Exception("no number of players fits")
    for count in range(1, MAX_PLAYERS + 1):
        try:
            _begun(peer_id, {}, count, 1)
            counts.append(count)
        except AssertionError:
            continue
        except Exception as error:
            last = error
            if not counts and not isinstance(error, (KeyError, IndexError, ValueError)):
                break
    return counts, last


def _lack(error: BaseException) -> dict[str, str]:
    said = " ".join(str(error).split())
    if isinstance(error, LookupError) and "Resource" in said:
        return {"needs": "data of NLTK in NLTK_DATA: words, averaged_perceptron_tagger_eng"}
    if "API key" in said:
        return {"needs": "a key of OpenRouter, whose models judge or answer"}
    if isinstance(error, SyntaxError):
        return {"problem": f"a file of the package does not parse: {said[:80]}"}
    if isinstance(error, FileNotFoundError):
        return {"problem": "a file that the game reads is missing from the package"}
    if isinstance(error, ImportError):
        return {"problem": f"a module is missing from the package: {said.rpartition('named ')[2]}"}
    return {"problem": f"the package fails: {type(error).__name__}: {said[:80]}"}


def _begun(peer_id: str, arguments: dict[str, Any], players: int, seed: int) -> Any:
    random.seed(seed)
    with contextlib.suppress(ImportError):  # a game may draw from numpy, where that is installed
        importlib.import_module("numpy").random.seed(seed)
    package: Any = importlib.import_module("textarena")
    env = package.make(peer_id, **arguments)
    env.reset(num_players=players, seed=seed)
    if players == 1 and not isinstance(env.state, package.SinglePlayerState):
        raise AssertionError("a game for several players, which does not refuse a single one")
    return env


class ArenaGame:
    """A game. Settings that are not named here go to the peer's class.

    Settings:
        variant: the peer's variant, such as `hard`.
        seat: the seat that the policy plays; -1 leaves all seats to policies.
        players: the number of players; by default the fewest.
        opponent: what the other seats say: `random`, a text in brackets that the game shows them,
            or `say:TEXT`.
        max_chars: how much of an action is passed on; some games fail on longer ones.
        observations: `new`, what happened since the last turn, or `full`, the peer's own view.
    """

    def __init__(self, family: str, settings: dict[str, Any]) -> None:
        known, left = variants(), dict(settings)
        refuse_unknown(family, sorted(known), "game of textarena")
        plain = "" if "" in known[family] else next(iter(known[family]))
        variant = str(left.pop("variant", plain))
        refuse_unknown(variant, sorted(known[family]), f"variant of {family}")
        self.peer_id = known[family][variant]
        self.seat, self.players = int(left.pop("seat", 0)), int(left.pop("players", 0))
        self.opponent = str(left.pop("opponent", "random"))
        self.view = str(left.pop("observations", "new"))
        self.max_chars = int(left.pop("max_chars", 4000))
        self.arguments = left
        if self.view not in ("new", "full"):
            raise PeerRefusal(f"observations is 'new' or 'full', got {self.view!r}")
        if self.opponent != "random" and not self.opponent.startswith("say:"):
            raise PeerRefusal(f"opponent is 'random' or 'say:TEXT', got {self.opponent!r}")
        if self.players == 0:
            self.players = self._fewest()
        if not -1 <= self.seat < self.players:
            raise PeerRefusal(f"seat is from 0 to {self.players - 1}, or -1, got {self.seat}")
        self._env: Any = None
        self._random = random.Random()
        self._ended = False
        self._moves = 0

    def about(self) -> dict[str, Any]:
        """Return the number of players; the reward of a game is what the peer says."""
        return {"players": self.players, "peer_id": self.peer_id}

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Begin the game of the task's seed, and play to the policy's first turn.

        A game that opponents end before that turn is left, and one of a further seed is begun.
        """
        for attempt in range(MAX_BEGINNINGS):
            seed = (int(task["seed"]) + attempt * _STRIDE) % (1 << 32)
            self._random, self._ended = random.Random(seed), False
            self._env = _begun(self.peer_id, self.arguments, self.players, seed)
            opening = self._to_turn()
            if not self._ended:
                return opening
        raise RuntimeError(f"{MAX_BEGINNINGS} games were over before the policy's first turn")

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Play an action, then the opponents' to the policy's next turn."""
        self._say(str(action["text"]).strip()[: self.max_chars])
        return self._to_turn()

    def _to_turn(self) -> dict[str, Any]:
        for _ in range(MAX_OPPONENT_MOVES):
            if self._ended:
                return self._over()
            player = int(self._state().current_player_id)
            if self.seat in (-1, player):
                return {
                    "observation": self._seen(player), "reward": 0.0, "info": {"player": player}
                }  # fmt: skip
            self._say(self._opponent_says(self._seen(player)))
        return {"observation": "", "failure": f"no turn in {MAX_OPPONENT_MOVES} opponents' moves"}

    def _say(self, text: str) -> None:
        done, _ = self._env.step(text)
        self._ended = bool(done)

    def _over(self) -> dict[str, Any]:
        rewards, info = self._env.close()
        if not isinstance(rewards, dict):
            return {"failure": f"the game ended with the rewards {rewards!r:.80}"}
        seats = range(self.players) if self.seat < 0 else [self.seat]
        lacking = [seat for seat in seats if seat not in rewards]
        if lacking:
            return {"failure": f"the game ended without a reward for player {lacking[0]}"}
        facts: dict[int, dict[str, Any]] = info if isinstance(info, dict) else {}
        reward_of = {str(seat): _reward(rewards[seat], facts.get(seat, {})) for seat in seats}
        reason = facts.get(seats[0], {}).get("reason", "")
        # What a player has not been shown yet, since the game ended in another player's turn.
        unseen = self._state().observations
        shown = {str(seat): self._text(unseen.get(seat, [])) for seat in seats}
        return {
            "observation": shown[str(max(self.seat, 0))],
            "reward": reward_of[str(max(self.seat, 0))],
            "terminated": True,
            "info": {"rewards": reward_of, "reason": str(reason)[:500]}
            | ({"shown": shown} if self.seat < 0 else {}),
        }

    def _seen(self, player: int) -> str:
        if self.view == "full":
            return as_text(self._env.get_observation()[1])
        return self._text(self._inner().get_observation()[1])

    def _text(self, messages: Any) -> str:
        """Write messages, each with sender, text and kind, as the peer's wrapper does."""
        if not isinstance(messages, list):
            return as_text(messages)
        names = self._state().role_mapping or {}
        lines: list[str] = []
        for message in messages:
            sender = message[0]
            name = "GAME" if sender == -1 else names.get(sender, f"Player {sender}")
            lines.append(f"[{name}] {message[1]}")
        return "\n".join(lines)

    def _opponent_says(self, seen: str) -> str:
        if self.opponent.startswith("say:"):
            return self.opponent.removeprefix("say:")
        shown = [line for line in _SHOWN.findall(seen) if not _NAMES.match(line)]
        return self._random.choice(shown) if shown else f"[{self._random.randrange(9)}]"

    def _inner(self) -> Any:
        env = self._env
        while "env" in vars(env):
            env = env.env
        return env

    def _state(self) -> Any:
        return self._inner().state

    def _fewest(self) -> int:
        error: BaseException | None = None
        for count in range(1, MAX_PLAYERS + 1):
            try:
                _begun(self.peer_id, self.arguments, count, 1)
                return count
            except AssertionError as refusal:
                error = error or refusal
            except TypeError as problem:
                raise PeerRefusal(f"{self.peer_id} of textarena: {problem}") from problem
            except (KeyError, IndexError, ValueError) as problem:
                error = problem
            except SyntaxError as problem:
                raise PeerRefusal(
                    f"{self.peer_id} of textarena does not parse in this Python: {problem}; "
                    "python=PYTHON names a newer one (ludus env install textarena --python ...)"
                ) from problem
        raise PeerRefusal(f"{self.peer_id} of textarena cannot be begun: {error}")


def _reward(reward: Any, facts: dict[str, Any]) -> float:
    """Return a player's reward.

    Some games hand over the message of an invalid move where its reward belongs; such a move is
    worth what the package gives by default.
    """
    return (
        INVALID_MOVE if isinstance(reward, str) and facts.get("invalid_move") else as_reward(reward)
    )
