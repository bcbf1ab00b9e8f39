"""A value in TOML's spelling, on one line."""

from typing import Any

import tomli_w

from ike_core.config.keys import quoted


def spelt(value: Any) -> str:
    """true, 1e-05, "text", [1, 2], { steps = 10 }"""
    if isinstance(value, dict):
        pairs = ", ".join(f"{quoted(name)} = {spelt(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(spelt(item) for item in value)}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
