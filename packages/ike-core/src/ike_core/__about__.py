"""The one version line of all five packages; scripts/bump.py changes it."""

__version__ = "0.1.0"
