"""How long a chat template may take for one conversation."""

LIMIT_SECONDS = 10.0
"""Real ones take well under a millisecond."""


class TooLongError(Exception):
    """The time is up."""
