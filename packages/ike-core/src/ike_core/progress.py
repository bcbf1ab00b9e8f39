"""How far a run is."""

import attrs


@attrs.frozen
class Progress:
    """Counts since the start of the run; everything else about the data is a function of these."""

    step: int = 0
    """Optimizer updates finished (or skipped because they were not finite)."""
    epoch: float = 0.0
    """Passes over the training set."""
    examples: int = 0
    tokens: int = 0
    """All tokens read, trunks once, filler not counted."""
    supervised_tokens: float = 0.0
    """Sum of weights['tokens']."""
    skipped: int = 0
    """Updates skipped since their loss or norm was not finite."""
