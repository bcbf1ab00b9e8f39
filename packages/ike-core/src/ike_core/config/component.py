"""A part named by `uses`: where its class is, and the table of its fields."""

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class Component:
    """A table with `uses`, core's own keys taken out. Nothing is imported before `build`."""

    path: str
    """Dotted place of the table: 'objective', 'hooks.ema'."""
    uses: str
    """'module:Name'"""
    table: Mapping[str, Any]
    """The part's own fields, as the resolved tree has them."""

    def build(self, *, tokenizer: Any = None, **defaults: Any) -> Any:
        """Imports the module and structures the table into the class; ConfigError names file and line of what is wrong.

        A field annotated `Tokenizer` that the table leaves out gets `tokenizer`; `defaults` fill fields that both the
        class has and the table leaves out.
        """
        raise NotImplementedError
