"""The `ike-launch` command. Until a command is known only the standard library is imported: --help is instant."""

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Sequence

LAYERS = "TOML files, later ones win; key.path=value sets one key; ~table removes an inherited table"
USAGE = """\
ike-launch train LAYER... [key=value...] [~table] [--ranks N] [--dry-run]
       ike-launch infer LAYER... [key=value...] [~table] [--ranks N] [--dry-run]
       ike-launch run [--ranks N] [--port P] -- python my_script.py ...
       ike-launch config LAYER... [key=value...] [~table] [--explain KEY]"""
COMMANDS = {
    "train": "train as the settings say",
    "infer": "answer or score records with a model",
    "run": "start ranks of any command, with the environment that torchrun gives",
    "config": "print the resolved settings, each with the file and line that set it",
}


def main() -> int:
    """Entry point; returns the exit code."""
    return command(sys.argv[1:])


def command(arguments: Sequence[str]) -> int:
    """Runs one command. Exit codes: 0; 2 settings; 3 data; 4 checkpoint; 5 launch; 6 training; 1 anything else;
    128 + signal; `run` hands on the failing rank's own.
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
    from ike_core.errors import IkeError  # after --help: the errors' package brings attrs

    try:
        if name == "run":
            return _script(rest)
        if name == "config":
            return _config(rest)
        return _settings(name, rest)
    except IkeError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:  # before the ranks have started: then it is the supervisor's
        return _fail("interrupted by SIGINT", 128 + signal.SIGINT)
    except BrokenPipeError:  # as in `ike-launch run ... | head`: nobody listens any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 128 + signal.SIGPIPE


def _settings(name: str, rest: Sequence[str]) -> int:
    parser = _parser(name)
    parser.add_argument("layers", nargs="+", metavar="LAYER", help=LAYERS)
    parser.add_argument(
        "--ranks", type=_ranks, metavar="N", help="the same as launch.ranks=N; auto: one per GPU, else 1"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    given = parser.parse_intermixed_args(rest)
    from ike_launch.settings_run import run_settings

    layers = [*given.layers, *([f"launch.ranks={given.ranks}"] if given.ranks else [])]
    return run_settings("infer" if name == "infer" else "train", layers, dry_run=given.dry_run)


def _script(rest: Sequence[str]) -> int:
    options, words = _split(rest)
    parser = _parser("run")
    parser.add_argument("--ranks", type=_ranks, default="auto", metavar="N", help="auto: one per GPU, else 1")
    parser.add_argument("--port", type=int, default=0, metavar="P", help="where the ranks meet; 0: a free one")
    given = parser.parse_args(options)
    if not words:
        parser.error("no command to run; give it after --, as in: ike-launch run -- python my_script.py")
    from ike_launch.script_run import run_script

    return run_script(words, ranks=given.ranks, port=given.port)


def _config(rest: Sequence[str]) -> int:
    parser = _parser("config")
    parser.add_argument("layers", nargs="+", metavar="LAYER", help=LAYERS)
    parser.add_argument("--explain", metavar="KEY", help="what set this key, and what that overrode")
    given = parser.parse_intermixed_args(rest)
    from ike_launch.show import show_config

    return show_config(given.layers, explain=given.explain)


def _split(rest: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before the first -- and after it."""
    at = list(rest).index("--") if "--" in rest else len(rest)
    return rest[:at], rest[at + 1 :]


def _ranks(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number of at least 1")
    return int(text)


def _parser(name: str) -> argparse.ArgumentParser:
    usage = next(line for line in USAGE.splitlines() if f"ike-launch {name}" in line).strip()
    return argparse.ArgumentParser(usage=usage, description=COMMANDS[name], allow_abbrev=False)


def _overall_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:8}{text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="ike-launch",
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

        print(f"ike-launch {version('ike-launch')}")
        parser.exit()


def _fail(message: str, code: int) -> int:
    print(f"ike-launch: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
