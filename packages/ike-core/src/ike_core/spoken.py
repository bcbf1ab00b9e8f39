"""What messages call the things that a user's code gives."""

from typing import Any


def kind_of(value: Any) -> str:
    """'a list', 'None'"""
    return "None" if value is None else f"a {type(value).__name__}"


def name_of(part: Any) -> str:
    """What its author calls it: a function's name, or the class of a part."""
    return part.__name__ if hasattr(part, "__name__") else type(part).__name__
