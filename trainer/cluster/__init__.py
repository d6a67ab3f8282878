"""Runs on a Ray cluster: `ludus train --cluster`. Nothing else imports ray."""

from ludus.errors import MissingExtra

try:
    import ray  # noqa: F401
except ImportError:
    raise MissingExtra.of("ray", needed_for="ludus train --cluster") from None
