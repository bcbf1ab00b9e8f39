"""The settings: TOML layers, typed, with the file and line of every value."""

from ike_core.config.component import Component
from ike_core.config.config import Config
from ike_core.config.load import check_parts_by_source, load_config
from ike_core.config.provenance import Origin
from ike_core.config.sections import Sections

__all__ = ["Component", "Config", "Origin", "Sections", "check_parts_by_source", "load_config"]
