"""How many tokens an example of a dataset may have: one rule for the run, and for who prepares or checks its data."""

from ike_core.config import Config
from ike_core.errors import ConfigError


def token_limit(config: Config, max_tokens: int, *, positions: int) -> int:
    """`max_tokens` of a table; where it is 0 the smaller of batch.tokens_per_device and the model's positions.

    `positions` 0: not known. ConfigError where batch.tokens_per_device can't hold what the table allows.
    """
    ceiling = config.batch.tokens_per_device
    if max_tokens > ceiling:
        raise ConfigError(
            f"batch.tokens_per_device = {ceiling} can't hold an example of max_tokens = {max_tokens}; "
            "raise it, or lower max_tokens"
        )
    return max_tokens or min(ceiling, positions or ceiling)
