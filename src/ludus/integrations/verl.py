"""ludus verifiers and environments for verl.

* `compute_score` as verl's custom reward function asks a verifier:
  `reward.custom_reward_function.path=pkg://ludus.integrations.verl`, `.name=compute_score`.
* `LudusAgentLoop`, registered in verl as `ludus_agent`, plays an environment token in, token out.
* `LudusInteraction` plays an environment for versions of verl that have interactions (up to 0.7).

verl has no word for a rollout without a reward: a number of any value would enter the mean of the
group. So the agent loop plays an episode again whose verdict is not ok, at most `attempts` times in
all, and then raises `RewardUnavailable`; the other two raise at once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.background import on_background
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message
from ludus.rewards import Sample
from ludus.verdict import Verdict

from .bridge import BridgedEpisode, peer_package, spoken
from .rows import EpisodeRow, TextReplies, row_writer
from .scoring import verdict_of

logger = logging.getLogger(__name__)
ATTEMPTS = 3


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score a solution with a verifier; verl's custom reward function.

    Args:
        data_source: the name of the verifier, unless `extra_info["verifier"]` names it.
        solution_str: what the policy wrote.
        ground_truth: the gold.
        extra_info: the row's further columns; `info` is given to the verifier.
        settings: what verl gives to reward functions of its own; not read.

    Returns:
        `score`, and the parts of the reward by name.

    Raises:
        RewardUnavailable: the verdict is not ok.
        UnknownVerifier: nobody registered the name.
    """
    row = dict(extra_info or {})
    sample = Sample(response=solution_str, gold=ground_truth, info=dict(row.get("info") or {}))
    verdict = await verdict_of(row.get("verifier") or data_source, sample)
    return {
        "score": verdict.unwrap(),
        **{name: value for name, (value, _) in verdict.parts.items()},
    }


@row_writer
def rows(row: EpisodeRow, index: int) -> dict[str, Any]:
    """Return rows of a verl data set for `LudusAgentLoop`; see `rows.RowWriter`."""
    return {
        "data_source": row.env,
        "agent_name": "ludus_agent",
        "prompt": [{"role": "user", "content": f"{row.env}, task {row.task}"}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {**row.columns(), "index": index},
    }


def _agent_loop() -> Any:
    """Make the agent loop class, whose base and decorator are verl's."""
    loops: Any = peer_package("verl.experimental.agent_loop.agent_loop", "verl")

    class LudusAgentLoop(loops.AgentLoopBase):  # type: ignore[misc]
        """Plays an episode of the environment that a row names in `extra_info`; see `rows`.

        Args:
            attempts: how often an episode is played whose verdict is not ok.
            positional: the arguments of verl's base class.
        """

        def __init__(self, *positional: Any, attempts: int = ATTEMPTS, **named: Any) -> None:
            super().__init__(*positional, **named)
            self.attempts = attempts
            self.response_length = self.rollout_config.response_length

        async def run(self, sampling_params: dict[str, Any], **row: Any) -> object:
            """Play the episode of a row, and return the tokens and the reward.

            Raises:
                RewardUnavailable: every attempt ended without a reward.
            """
            settings = EpisodeRow.of(row.get("extra_info") or {})
            why = Verdict.invalid("no attempt was made")
            for attempt in range(self.attempts):
                episode = settings.episode()
                try:
                    fields = await _played(self, settings, episode, sampling_params)
                finally:
                    await on_background(episode.close())
                if episode.verdict.ok:
                    return loops.AgentLoopOutput(**fields)
                why = episode.verdict
                logger.warning("attempt %d: %s", attempt + 1, why.detail)
            raise RewardUnavailable(why)

    LudusAgentLoop.__module__ = __name__
    LudusAgentLoop.__qualname__ = LudusAgentLoop.__name__
    return loops.register("ludus_agent")(LudusAgentLoop)


async def _played(
    loop: Any, row: EpisodeRow, episode: BridgedEpisode, sampling_params: dict[str, Any]
) -> dict[str, Any]:
    """Play an episode by the tokens of an agent loop of verl, and return the fields of its
    `AgentLoopOutput`.
    """
    begun = await on_background(row.begin(episode))
    player = TextReplies(row.tool_format)
    messages = [_plain(message) for message in begun]
    tools = [tool.as_openai() for tool in episode.tools] or None
    metrics: dict[str, Any] = {"num_preempted": -1}
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    if not episode.over:
        ids = await loop.ct_build_initial_tokens(messages, tools=tools)
    request = secrets.token_hex(16)
    while not episode.over:
        output = await loop.server_manager.generate(
            request_id=request, prompt_ids=ids, sampling_params=sampling_params
        )
        merged, mask, more = await loop.ct_merge_assistant_token(
            ids, output.token_ids, mask, logprobs, assistant_logprobs=output.log_probs
        )
        ids, logprobs = merged.token_ids, more or []
        if len(mask) > loop.response_length:  # the end of what the policy may write
            break
        text = loop.tokenizer.decode(output.token_ids, skip_special_tokens=True)
        answer = await on_background(episode.act(player.action(text, episode.tools)))
        if episode.over or not answer:
            break
        before = [*messages, {"role": "assistant", "content": text}]
        messages = [*before, *(_plain(message) for message in answer)]
        merged, new_mask, more = await loop.ct_merge_context_msg(
            before, messages, ids, mask, logprobs or None, tools=tools
        )
        if len(new_mask) >= loop.response_length:
            break
        ids, mask, logprobs = merged.token_ids, new_mask, more or []
    return {
        "prompt_ids": ids[: len(ids) - len(mask)],
        "response_ids": ids[len(ids) - len(mask) :][: loop.response_length],
        "response_mask": mask[: loop.response_length],
        "response_logprobs": logprobs[: loop.response_length] or None,
        "reward_score": episode.verdict.reward,
        "num_turns": 2 * episode.turn,
        "metrics": metrics,
        "extra_fields": {"turn_scores": [], "tool_rewards": []},
    }


class LudusInteraction:
    """Plays an environment as an interaction of verl: the policy's turns are the actions.

    Args:
        config: `name`, and defaults for what `start_interaction` is given.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self.name = str(self.config.get("name", "ludus"))
        self._open: dict[str, tuple[BridgedEpisode, TextReplies]] = {}
        self._openings: dict[str, list[Message]] = {}

    async def start_interaction(self, instance_id: str | None = None, **given: Any) -> str:
        """Begin an episode, and return the name of the instance.

        Args:
            instance_id: the name; made up where it is missing.
            given: `env`, `task`, `split`, `seed`, `url`, `tool_format`, as in a row's `extra_info`.

        Raises:
            ConfigError: another episode of this name is open.
            RewardUnavailable: the episode could not begin.
        """
        name = instance_id or secrets.token_hex(8)
        if name in self._open:
            raise ConfigError(f"an episode named {name!r} is open; finalize it first")
        row = EpisodeRow.of({**self.config, **given})
        episode = row.episode()
        self._open[name] = episode, TextReplies(row.tool_format)  # so that nobody takes the name
        try:
            self._openings[name] = await on_background(row.begin(episode))
            if not episode.verdict.ok:
                raise RewardUnavailable(episode.verdict)
        except BaseException:
            await self.finalize_interaction(name)
            raise
        return name

    def opening(self, instance_id: str) -> list[dict[str, str]]:
        """Return the messages with which the episode begins, for the prompt of the rollout."""
        episode, player = self._of(instance_id)
        begun = player.opening(self._openings[instance_id], episode.tools)
        return [{"role": message.role.value, "content": message.text} for message in begun]

    async def generate_response(
        self, instance_id: str, messages: Sequence[Mapping[str, Any]], **given: Any
    ) -> tuple[bool, str, float, dict[str, Any]]:
        """Play the last message of the policy.

        Returns:
            whether the episode is over, what the environment says, the reward of this turn, and
            further data, which are empty.

        Raises:
            RewardUnavailable: the verdict is not ok.
        """
        episode, player = self._of(instance_id)
        last_said = next(
            (message for message in reversed(messages) if message["role"] == "assistant"), None
        )
        if last_said is None:
            raise ConfigError("there is no message of the policy to play")
        before = episode.verdict.reward or 0.0
        action = player.action(str(last_said.get("content") or ""), episode.tools)
        answer = await on_background(episode.act(action))
        if not episode.verdict.ok:
            raise RewardUnavailable(episode.verdict)
        reward = episode.verdict.unwrap() - before
        return episode.over, spoken(player.answer(answer)), reward, {}

    async def calculate_score(self, instance_id: str = "", **given: Any) -> float:
        """Return the reward so far.

        Raises:
            RewardUnavailable: the verdict is not ok.
        """
        return self._of(instance_id)[0].verdict.unwrap()

    async def finalize_interaction(self, instance_id: str = "", **given: Any) -> None:
        """Release the episode; a second call does nothing."""
        self._openings.pop(instance_id, None)
        opened = self._open.pop(instance_id, None)
        if opened is not None:
            await on_background(opened[0].close())

    def _of(self, name: str) -> tuple[BridgedEpisode, TextReplies]:
        if name not in self._open:
            raise ConfigError(f"no episode named {name!r} is open")
        return self._open[name]


def _plain(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role.value, "content": message.text}
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    return plain


def __getattr__(name: str) -> Any:
    """Make `LudusAgentLoop` at the first use, since the base class is verl's."""
    if name != "LudusAgentLoop":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loop_class = globals()[name] = _agent_loop()
    return loop_class
