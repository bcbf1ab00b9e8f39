"""The `ike-ckpt` command. Until a command is known only the standard library is imported: --help is instant."""

import argparse
import difflib
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

USAGE = "ike-ckpt export RUN|STEP|MODEL OUT [--merge] [--dtype DTYPE] [--base FOLDER]"
COMMANDS = {
    "export": "write the model of a run, of one of its steps, or of a folder as a folder of its own",
}


def main() -> int:
    """Entry point; returns the exit code."""
    return command(sys.argv[1:])


def command(arguments: Sequence[str]) -> int:
    """Runs one command. Exit codes: 0; 2 settings; 4 checkpoint; 1 anything else; 128 + signal."""
    name, *rest = arguments or ["--help"]
    if name.startswith("-"):
        _overall_parser().parse_args(arguments or ["--help"])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(COMMANDS)}"
        return _fail(f"no command {name!r}{hint}", 2)
    return _run({"export": _export}[name], rest)


def _run(run: Callable[[Sequence[str]], None], rest: Sequence[str]) -> int:
    from ike_core.errors import IkeError  # the errors' package brings attrs

    try:
        run(rest)
    except IkeError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _export(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ike-ckpt export", description=COMMANDS["export"], allow_abbrev=False)
    parser.add_argument("place", type=Path, metavar="RUN|STEP|MODEL", help="of a run the newest step that has a model")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    parser.add_argument("--merge", action="store_true", help="of an adapter make the full model")
    parser.add_argument(
        "--dtype", default="", choices=["float32", "bfloat16", "float16"], help="of its weights; default: as they are"
    )
    parser.add_argument("--base", type=Path, help="folder of an adapter's base, where it is not where the adapter says")
    given = parser.parse_args(arguments)
    from ike_ckpt.exporting import export  # torch: after --help

    print(export(given.place, given.out, merge=given.merge, dtype=given.dtype, base=given.base))


def _fail(message: str, code: int) -> int:
    print(f"ike-ckpt: {message}", file=sys.stderr)
    return code


def _overall_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:9}{text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="ike-ckpt",
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

        print(f"ike-ckpt {version('ike-ckpt')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
