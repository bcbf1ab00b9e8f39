"""What a check has found, for people and for machines."""

import attrs
from rich.console import Console
from rich.text import Text

from ike_data.commands.lengths import Lengths
from ike_data.commands.pieces import visible
from ike_data.commands.survey import Finding
from ike_data.ledger import Entry, Tally

WIDTH = 40
"""Of the longest bar, in columns."""
_QUANTILES = {"shortest": 0.0, "median": 0.5, "90%": 0.9, "99%": 0.99, "longest": 1.0}


@attrs.frozen(kw_only=True)
class Report:
    """Of one dataset."""

    data: str
    tally: Tally
    max_tokens: int
    too_long: str
    budget: float
    lengths: Lengths | None
    repeats: int
    """Examples with the tokens of an earlier one."""
    repeated: tuple[tuple[str, int], ...]
    """(source of the first, copies), most copies first; some of them."""
    findings: tuple[Finding, ...]
    refusal: str
    """Why a run would refuse this; '': it would not."""

    def show(self, console: Console) -> None:
        """On a terminal, or as plain lines."""
        console.print(Text(self.tally.summary(self.data), "bold"))
        console.print(f"max_tokens = {self.max_tokens}, too_long = {self.too_long}")
        if self.lengths is not None:
            _show_lengths(console, self.lengths, self.max_tokens)
        console.print(self._duplicates())
        for source, copies in self.repeated:
            console.print(f"  {visible(source)}: {copies:,} copies")
        for finding in self.findings:
            _show_finding(console, finding)
        console.print()

    def facts(self) -> dict[str, object]:
        """As JSON has them."""
        tally = self.tally
        return {
            "data": self.data,
            "rows": tally.rows,
            "rows_not_used": tally.unusable,
            "shapes": tally.shapes,
            "budget": self.budget,
            "refusal": self.refusal,
            "examples": tally.examples,
            "tokens": tally.tokens,
            "supervised": tally.supervised,
            "tokens_not_used": sum(finding.tokens for finding in self.findings),
            "max_tokens": self.max_tokens,
            "too_long": self.too_long,
            "lengths": None if self.lengths is None else _length_facts(self.lengths),
            "repeats": self.repeats,
            "repeated": [{"source": source, "copies": copies} for source, copies in self.repeated],
            "findings": [attrs.asdict(finding) for finding in self.findings],
        }

    def _duplicates(self) -> str:
        share = self.repeats / max(self.tally.examples, 1)
        return f"duplicates: {self.repeats:,} examples have the tokens of an earlier one ({share:.1%})"


def _show_lengths(console: Console, lengths: Lengths, max_tokens: int) -> None:
    numbers = ", ".join(f"{name} {lengths.quantile(share):,}" for name, share in _QUANTILES.items())
    console.print(f"tokens of an example: mean {lengths.mean:,.1f}, {numbers}")
    bars = lengths.bars()
    most = max(bar.examples for bar in bars)
    digits = len(f"{bars[-1].most:,}")
    for bar in bars:
        drawn = "█" * round(WIDTH * bar.examples / most) or ("▏" if bar.examples else "")
        style = "green" if bar.least <= max_tokens else "yellow"
        label = f"  {bar.least:>{digits},} to {bar.most:>{digits},}  "
        console.print(Text.assemble(label, (drawn, style), f" {bar.examples:,}"))


def _show_finding(console: Console, finding: Finding) -> None:
    tokens = f", {finding.tokens:,} tokens not used" if finding.tokens else ""
    console.print(Text(f"{finding.kind}: {finding.count:,} {visible(finding.reason)}{tokens}", "yellow"))
    for entry in finding.first:
        console.print(Text(_line(entry)))
    if finding.count > len(finding.first):
        console.print(f"  and {finding.count - len(finding.first):,} more")


def _line(entry: Entry) -> str:
    return visible(f"  {entry.source}: {entry.reason}")


def _length_facts(lengths: Lengths) -> dict[str, object]:
    named = {name: lengths.quantile(share) for name, share in _QUANTILES.items()}
    return {"mean": lengths.mean, **named, "histogram": [attrs.asdict(bar) for bar in lengths.bars()]}
