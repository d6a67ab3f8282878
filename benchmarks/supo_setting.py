"""One size of LedgerRelay, and what each arm of `supo.py` does when its window is full."""

from dataclasses import dataclass, replace

TURN_TOKENS = 6
"""n, end of turn, user mark, two characters, end of turn with assistant mark."""
INSTRUCTION, CONTINUATION = "Sum up.", "Summary: {summary}"
PHRASES = (
    "go",
    "\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    INSTRUCTION,
    "\n\nSummary: ",
)
"""What every episode repeats, one token each."""
SHAPE = {"hidden": 64, "layers": 2, "heads": 4}


@dataclass(frozen=True)
class Setting:
    """One size of the task."""

    registers: int = 3
    turns: int = 16
    doublings: int = 0
    spread: int = 0
    """T is up to this many turns more."""
    window: int = 56
    threshold: float = 0.0
    """L as a share of W; 0 leaves just the room that an action, the instruction and the summary
    take after it, so that a row stays within W.
    """
    demo: str = "recency"
    copy_steps: int = 900
    copied: float = 0.06
    """The clean demonstrator is shown until the loss is below this, in nats a token: what is left
    is the answers.
    """
    answer_steps: int = 1500
    answer_batch: int = 48
    answered: float = 3e-3
    """Then episodes of about half a window, one and two that ask for any write, until the loss is
    below this, or all again from other weights. RL does not get past what is missing here. Most
    weights take 66 to 519 steps with three registers, about a thousand with four.
    """
    attempts: int = 2
    """Random weights it is begun from, at most."""
    settle_steps: int = 150
    """After that, of the task itself, at a rate that falls from `demo_lr` to 0."""
    demo_steps: int = 240
    demo_lr: float = 1e-3
    """At first; it falls along a line to 0. A third of the rate before: the habit is taken on, by
    each register alike, and what copies stays.
    """
    long_steps: int = 120
    early_steps: int = 200
    whole_steps: int = 500
    learned: float = 5e-4
    """For the arm that sees everything: windows twice as long; whole episodes of a quarter, half
    and all of T that ask for any write; those of the task, until they are learned.
    """
    steps: int = 50
    lr: float = 1.5e-3
    """It rises to this over the first `rise` steps and falls along a line to 0."""
    rise: int = 10
    """Adam's first steps are as long whatever the gradient says: without this, noise alone can
    settle on one digit before the reward is heard.
    """
    tasks: int = 0
    """A step; 0 is two for each turn, 32 at least. Twice the turns are twice the digits by chance
    and half the rollouts whose reward hears of one (T = 32: 0.66 with 32 tasks, 0.98 with 64).
    """
    group: int = 8
    eval_tasks: int = 256
    longer: int = 4
    """Tested at this many times T; 0 is not tested."""
    tier: str = "copy"
    requeries: int = 0
    """Of a fetch episode. Above 0, its summaries drop the last pair, which is then asked for again;
    at 0 it is carried.
    """
    max_summaries: int = 0
    """S; 0 is as many as there are turns."""

    @property
    def gap(self) -> int:
        """Turns from the write that decides to the question: no window shows so many lines."""
        lines = self.window // TURN_TOKENS
        return lines // 2 + 1 if self.fetches else lines

    @property
    def tasks_a_step(self) -> int:
        """As many as were asked for, or as T takes."""
        return self.tasks or max(32, 2 * self.turns)

    @property
    def varied(self) -> "Setting":
        """T is up to a window shorter: a question may stand anywhere in its window, as it does in
        longer episodes.
        """
        fewer = min(self.window // TURN_TOKENS, self.turns - self.gap - self.registers)
        return replace(self, turns=self.turns - max(0, fewer), spread=max(0, fewer))

    @property
    def short(self) -> "Setting":
        """Episodes of half a window, one and two: a good part of what they say are answers."""
        return replace(self, turns=max(self.registers + 1, self.gap // 2), doublings=2)

    @property
    def mixed(self) -> "Setting":
        """T is a quarter of this one's shortest, half of it or all of it."""
        return replace(self, turns=max(self.registers + 1, self.turns // 4), doublings=2)

    @property
    def shown(self) -> int:
        """W of the first windows that are shown. Where a summary drops the last pair, no
        demonstration trains what is said there; wider ones do.
        """
        return self.window + (2 * TURN_TOKENS if self.requeries else 0)

    @property
    def wider(self) -> int:
        """W of the windows between those of the table and whole episodes."""
        return 2 * (self.window + TURN_TOKENS)

    @property
    def fetches(self) -> bool:
        """Whether writes are asked for one by one: two lines a turn."""
        return self.tier == "fetch"

    def bound(self, arm: str) -> float | None:
        """Greedy success an arm cannot pass, where that is proved."""
        proved = arm in ("keep_last_k", "discard", "none") and not self.requeries
        return 0.1 if proved else None

    @property
    def full_at(self) -> float:
        """L as a share of W, half a token above the whole number."""
        room = 2 * self.action_tokens + self.summary_tokens
        return self.threshold or (self.window - room + 0.5) / self.window

    @property
    def summary_tokens(self) -> int:
        """Most tokens of a summary: registers with a digit each, a pending fetch, its end."""
        said = 2 if self.demo == "wordy" else 1
        return 2 * self.registers * said + (4 if self.fetches else 2)

    @property
    def action_tokens(self) -> int:
        """Most tokens of an action, with its end."""
        return 3 if self.fetches else 2

    @property
    def longest(self) -> int:
        """Tokens that hold the longest episode whole."""
        return TURN_TOKENS * ((self.turns << self.doublings) + 4)

    def env(self, *, turns: int | None = None, gap: int | None = None, demo: str = "clean") -> str:
        """The environment as an id with arguments."""
        return (
            f"ludus/ledger-v0?registers={self.registers}&turns={turns or self.turns}"
            f"&doublings={self.doublings}&spread={self.spread}&gap={gap or self.gap}&demo={demo}"
            f"&tier={self.tier}&requeries={self.requeries}"
        )


ARMS = ("supo", "masked", "full", "keep_last_k", "discard", "none")


def context_of(setting: Setting, arm: str):
    """The context manager of an arm."""
    from ludus.agent.context import ContextSettings

    if arm in ("none", "full"):
        return ContextSettings()
    turns = setting.turns << setting.doublings
    return ContextSettings(
        manager=arm if arm in ("keep_last_k", "discard") else "summarize",
        threshold=setting.full_at,
        keep=max(1, (setting.window // TURN_TOKENS) // 2),
        max_summaries=setting.max_summaries or turns * (3 if setting.fetches else 1),
        summary_tokens=setting.summary_tokens,
        last_pair="discard" if setting.requeries else "carry",
        train_summaries=arm != "masked",
        instruction=INSTRUCTION,
        continuation=CONTINUATION,
    )
