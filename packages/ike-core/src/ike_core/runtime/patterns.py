"""Regular expressions over parameter names."""

import difflib
import re
from collections.abc import Sequence

from ike_core.errors import ConfigError


def matching(pattern: str, names: Sequence[str], key: str, *, of: str = "parameter names") -> list[str]:
    """The names that a regular expression is found in, in their order.

    ConfigError, saying `key`, what the names are `of` and the nearest, where there is none or the pattern is broken.
    """
    try:
        found = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise ConfigError(f"{key} = {pattern!r} is no regular expression: {error}") from error
    if not found:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
        raise ConfigError(f"{key} = {pattern!r} is in none of {len(names)} {of}; near: {', '.join(near)}")
    return found
