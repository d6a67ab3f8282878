"""The report of a probe about a chat template, as a table and as JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .fallbacks import Fallbacks


class Outcome(StrEnum):
    """How a template stands to a feature."""

    SUPPORTED = "supported"
    """The template shows the feature by itself."""
    REPAIRED = "repaired"
    """A declared fallback shows the feature."""
    REFUSED = "refused"
    """Nothing shows the feature; the detail says why."""
    UNVERIFIED = "unverified"
    """The feature could not be checked, for want of a tokenizer."""


class TemplateFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one feature."""

    feature: str
    outcome: Outcome
    detail: str = ""
    fallbacks: list[str] = []
    """The repairs that were switched on for this feature."""


class Origin(msgspec.Struct, frozen=True):
    """The source of a template."""

    name: str = "stock"
    digest: str = ""
    recognised: str = "not looked up"
    """What the digest says, for people."""
    brief_tools: bool = False
    """Whether the template lists the names of tools and parameters alone, by design."""


class TemplateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole outcome of a probe."""

    template: str
    """The name of the template: a family of the project, or stock."""
    digest: str
    """The digest of the normalised template."""
    recognised: str
    """What the digest says: the released model, a near miss with the difference, or unknown."""
    tool_format: str
    findings: list[TemplateFinding]
    fallbacks: Fallbacks
    opening: str
    """The text that the template writes between a question and its answer."""
    stop_tokens: list[str]
    """The tokens that end a turn."""

    def of(self, outcome: Outcome) -> list[TemplateFinding]:
        """Return the findings with an outcome."""
        return [finding for finding in self.findings if finding.outcome is outcome]

    @property
    def blocking(self) -> list[TemplateFinding]:
        """The refusals with which no episode can be played; images matter only where an environment
        shows some.
        """
        return [finding for finding in self.of(Outcome.REFUSED) if finding.feature != "images"]

    def table(self) -> str:
        """Return the report as lines for a terminal."""
        facts = {
            "template": f"{self.template} ({self.digest})",
            "recognised": self.recognised,
            "tool format": self.tool_format,
            "before an answer": repr(self.opening),
            "ends of a turn": " ".join(self.stop_tokens),
        }
        width = max(len(finding.feature) for finding in self.findings)
        lines = [f"{name:<{width}}  {fact}" for name, fact in facts.items()]
        lines.append("")
        for row in self.findings:
            lines.append(f"{row.feature:<{width}}  {row.outcome:<10}  {_describe(row)}".rstrip())
        return "\n".join(lines)

    def notice(self) -> str:
        """Return one sentence about what was repaired or refused; empty if nothing was.

        Images are left out, since a run that shows images to a model without a processor is refused
        at its start.
        """
        repaired = [
            f"{finding.feature} ({_describe(finding)})" for finding in self.of(Outcome.REPAIRED)
        ]
        refusals = [f"{finding.feature} ({_describe(finding)})" for finding in self.blocking]
        parts = [
            f"{word}: {'; '.join(details)}"
            for word, details in (("repaired", repaired), ("refused", refusals))
            if details
        ]
        if not parts and self.template == "stock":
            return ""
        summary = f" does not show everything: {'. '.join(parts)}" if parts else " shows everything"
        return f"The chat template {self.template} ({self.recognised}){summary}."


def _describe(finding: TemplateFinding) -> str:
    fallback_names = ", ".join(finding.fallbacks)
    return "; ".join(part for part in (fallback_names, finding.detail) if part)
