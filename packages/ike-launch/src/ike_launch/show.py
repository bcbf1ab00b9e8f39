"""`ike-launch config`: the settings as they resolve, read without importing any part."""

import sys
from collections.abc import Sequence

from ike_core.config import check_parts_by_source, load_config


def show_config(layers: Sequence[str], *, explain: str | None) -> int:
    """Prints the resolved TOML, or why one key is what it is; what could not be checked is said on stderr."""
    config = load_config(*layers)
    for note in check_parts_by_source(config):
        print(f"ike-launch: {note}", file=sys.stderr)
    print(config.explain(explain) if explain else config.to_toml().rstrip("\n"))
    return 0
