"""The settings of a run: typed sections, the tree they come from, and who said what."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.explain import explain
from ike_core.config.kinds import identity_only
from ike_core.config.layers import parse_key
from ike_core.config.provenance import Origin, Provenance
from ike_core.config.sections import Sections
from ike_core.config.write import to_toml


@attrs.frozen(kw_only=True, eq=False)
class Config(Sections):
    """What `load_config` gives: the sections as attributes, and the script's own `[user]`."""

    user: Any
    """An instance of the class that `load_config(user=...)` names; without one the table as it is."""
    tree: Mapping[str, Any] = attrs.field(repr=False)
    """All that was said and every default of ike's own keys, resolved: what config.toml says."""
    provenance: Provenance = attrs.field(repr=False)

    @property
    def import_from(self) -> tuple[Path, ...]:
        """Folders of the files that say a `uses`: where the modules of the user's own parts are."""
        return self.run.import_from

    def origin(self, key: str) -> Origin:
        """The file and line, or the override, that set `key`."""
        return self.provenance.origin(parse_key(key))

    def explain(self, key: str) -> str:
        """Which file and line set `key`, what that overrode in order, and whether it is identity or mechanics.

        Of a table every key, a line each. ConfigError with the nearest key where nothing is called so.
        """
        return explain(parse_key(key), self.tree, self.provenance, self.run.import_from)

    def to_toml(self) -> str:
        """The resolved settings, each value's origin beside it. As the only layer they give the same fingerprint."""
        return to_toml(self.tree, self.provenance)

    def fingerprint(self) -> str:
        """Of every setting; 16 hexadecimal digits."""
        return _fingerprint(self.tree)

    def identity_fingerprint(self) -> str:
        """Of what changes an update."""
        return _fingerprint(identity_only(dict(self.tree)))


def _fingerprint(tree: Mapping[str, Any]) -> str:
    """Whatever the order of keys. Dates are written as text."""
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
