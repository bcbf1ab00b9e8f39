"""`ike-data check`: all rows, read and counted; nothing is written."""

import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
from rich.console import Console

from ike_core.errors import DataError
from ike_data.building import Request
from ike_data.commands.duplicates import Duplicates, Group
from ike_data.commands.report import Report
from ike_data.commands.row_bar import row_bar
from ike_data.commands.selection import Selection, select
from ike_data.commands.survey import Survey
from ike_data.ledger import Budget
from ike_data.workers import processed


def check_rows(words: Sequence[str], *, data: str, as_json: bool) -> int:
    """Tells of each dataset that the words mean. Returns 0, or DataError's exit code where a run would refuse one."""
    reports = [_report(selection) for selection in select(words, data=data)]
    if as_json:
        print(orjson.dumps([report.facts() for report in reports], option=orjson.OPT_INDENT_2).decode())
    else:
        console = Console(highlight=False, soft_wrap=True)
        for report in reports:
            report.show(console)
    refusals = [report.refusal for report in reports if report.refusal]
    for refusal in refusals:
        print(f"ike-data: {refusal}", file=sys.stderr)
    return DataError.exit_code if refusals else 0


def _report(selection: Selection) -> Report:
    request = selection.request
    with Duplicates() as duplicates, row_bar(selection.name, request) as told:
        survey = Survey(selection.max_tokens, duplicates)
        for _, block in processed(request.preparation, request.batches(), request.workers, _say):
            survey.add(block)
            told(survey.tally.rows)
        repeats, groups = duplicates.found()
    return Report(
        data=selection.name,
        tally=survey.tally,
        max_tokens=selection.max_tokens,
        too_long=selection.too_long,
        budget=selection.budget,
        lengths=survey.lengths(),
        repeats=repeats,
        repeated=tuple(_named(groups, request)),
        findings=tuple(survey.findings()),
        refusal=_refusal(selection, survey),
    )


def _named(groups: Sequence[Group], request: Request) -> list[tuple[str, int]]:
    """The groups by the source of their first row: rows are read once more, as far as the last of these."""
    sources: dict[int, str] = {}
    wanted = {group.row for group in groups}
    for number, (source, _) in enumerate(request.rows()):
        if len(sources) == len(wanted):
            break
        if number in wanted:
            sources[number] = source
    return [(sources[group.row], group.copies) for group in groups]


def _refusal(selection: Selection, survey: Survey) -> str:
    try:
        Budget(selection.name, selection.budget, Path("ledger.jsonl")).check(survey.tally)
    except DataError as error:
        return str(error).partition("\n")[0]
    return ""


def _say(line: str) -> None:
    print(line, file=sys.stderr)
