"""`log.jsonl`: the numbers of a run, an object a line."""

import json
import math
from collections.abc import Mapping
from typing import Any, TextIO

import attrs

from ike_core.interfaces import RunFacts

LOG_FILE = "log.jsonl"


@attrs.define
class JsonLinesTracker:
    """Appends to `log.jsonl` in the run folder: `step`, then what was due at that step, under its own names.

    JSON has no nan and no infinity, so such a value is null, and the line says which it was under `nonfinite`:
    `{"step": 7, "loss": null, "nonfinite": {"loss": "inf"}}`. Each line is handed to the operating system whole, before
    `log` returns: a kill can cost the line being written, none before it.
    """

    _lines: TextIO = attrs.field(init=False, repr=False)

    def start(self, run: RunFacts) -> None:
        # Line-buffered: one write a line.
        self._lines = open(run.folder / LOG_FILE, "a", buffering=1, encoding="utf-8", newline="\n")  # noqa: SIM115

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        row: dict[str, Any] = {"step": step}
        nonfinite: dict[str, str] = {}
        for name, value in values.items():
            row[name] = value
            if isinstance(value, float) and not math.isfinite(value):
                row[name] = None
                nonfinite[name] = str(value)
        if nonfinite:
            row["nonfinite"] = nonfinite
        self._lines.write(json.dumps(row, allow_nan=False) + "\n")

    def finish(self) -> None:
        self._lines.close()
