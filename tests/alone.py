"""`python tests/alone.py data torch deepspeed`: proves that ike_data imports with no sibling and none of these."""

import importlib
import sys
from importlib.util import find_spec

SIBLINGS = {"ike_data", "ike_tasks", "ike_ckpt", "ike_launch"}


def main(package: str, *forbidden: str) -> str:
    """What to print; an empty string where the environment is as it should be."""
    name = f"ike_{package}"
    present = sorted(module for module in (SIBLINGS - {name}) | set(forbidden) if find_spec(module) is not None)
    if present:
        return (
            f"{name} is not alone: {', '.join(present)} can be imported here; look at hatch.toml, env alone-{package}"
        )
    importlib.import_module(name)
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
