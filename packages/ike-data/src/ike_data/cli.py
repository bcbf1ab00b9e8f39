"""The `ike-data` command. Until a command is known only the standard library is imported: --help is instant."""

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Sequence

WORDS = "data files, or TOML layers of a run; key.path=value sets one key; ~table removes an inherited table"
DATA = "which rows of the settings: train, train.math (one source), valid.helpful, evaluate.gsm8k"
USAGE = """\
ike-data inspect FILES|LAYERS [key=value...] [--data NAME] [--rows N] [--start N] [--row SOURCE] [--html PAGE]
       ike-data check FILES|LAYERS [key=value...] [--data NAME] [--json]
       ike-data prepare LAYERS [key=value...] [--data NAME]"""
COMMANDS = {
    "inspect": "show rows as the model will see them: which tokens are learned, and what became of the rest",
    "check": "read all rows: counts, lengths, duplicates, what would not be used and why",
    "prepare": "process the rows of a run before it starts, and keep them where it will look",
}


def main() -> int:
    """Entry point; returns the exit code."""
    return command(sys.argv[1:])


def command(arguments: Sequence[str]) -> int:
    """Runs one command. Exit codes: 0; 2 settings; 3 data, or more unusable rows than the budget; 1 anything else;
    128 + signal.
    """
    name, *rest = arguments or ["--help"]
    if name.startswith("-"):
        _overall_parser().parse_args(arguments or ["--help"])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(COMMANDS)}"
        return _fail(f"no command {name!r}{hint}", 2)
    return _run(name, rest)


def _run(name: str, rest: Sequence[str]) -> int:
    run = {"inspect": _inspect, "check": _check, "prepare": _prepare}[name]
    given = _parse(name, rest)
    from ike_core.errors import IkeError  # after --help: the errors' package brings attrs

    try:
        return run(given)
    except IkeError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # as in `ike-data inspect ... | head`: nobody listens any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 128 + signal.SIGPIPE


def _inspect(given: argparse.Namespace) -> int:
    from ike_data.commands.inspecting import inspect_rows

    return inspect_rows(
        given.words, data=given.data, rows=given.rows, start=given.start, row=given.row, page=given.html
    )


def _check(given: argparse.Namespace) -> int:
    from ike_data.commands.checking import check_rows

    return check_rows(given.words, data=given.data, as_json=given.json)


def _prepare(given: argparse.Namespace) -> int:
    from ike_data.commands.preparing import prepare_stores

    return prepare_stores(given.words, data=given.data)


def _parse(name: str, rest: Sequence[str]) -> argparse.Namespace:
    usage = next(line for line in USAGE.splitlines() if f"ike-data {name}" in line).strip()
    parser = argparse.ArgumentParser(usage=usage, description=COMMANDS[name], allow_abbrev=False)
    parser.add_argument("words", nargs="+", metavar="FILES|LAYERS", help=WORDS)
    default = "" if name == "prepare" else "train"
    parser.add_argument(
        "--data", default=default, metavar="NAME", help=f"{DATA}; {default or 'all of [data]'} if not said"
    )
    if name == "inspect":
        parser.add_argument("--rows", type=_count, default=5, metavar="N", help="how many rows; 5")
        parser.add_argument("--start", type=_count, default=0, metavar="N", help="rows to pass over first")
        parser.add_argument("--row", default="", metavar="SOURCE", help="one row by its place, such as train.jsonl:17")
        parser.add_argument("--html", default="", metavar="PAGE", help="write one self-contained page instead")
    if name == "check":
        parser.add_argument("--json", action="store_true", help="one JSON object for machines")
    return parser.parse_intermixed_args(rest)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def _overall_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:9}{text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="ike-data",
        usage=USAGE,
        epilog=f"commands:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="print the version")
    return parser


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # 20 ms that only this needs

        print(f"ike-data {version('ike-data')}")
        parser.exit()


def _fail(message: str, code: int) -> int:
    print(f"ike-data: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
