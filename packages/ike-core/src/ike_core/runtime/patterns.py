"""Regular expressions over parameter names."""

import difflib
import re
from collections.abc import Sequence

from ike_core.errors import ConfigError


def matching(pattern: str, names: Sequence[str], key: str) -> list[str]:
    """The names that a regular expression is found in, in their order.

    ConfigError, saying `key` and the nearest names, where there is none or the pattern can't be read.
    """
    try:
        found = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise ConfigError(f"{key} = {pattern!r} is no regular expression: {error}") from error
    if not found:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
        raise ConfigError(f"{key} = {pattern!r} is in none of {len(names)} parameter names; near: {', '.join(near)}")
    return found
