"""What is laid over what: files left to right, what they extend under them, overrides last."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import tomli

from ike_core.config.keys import Key, hint
from ike_core.config.positions import positions
from ike_core.config.provenance import Origin, shown
from ike_core.errors import ConfigError

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_PART}(?:\.{_PART})*"
_OVERRIDE = re.compile(rf"({_KEY})=(.*)", re.DOTALL)
_REMOVAL = re.compile(rf"~({_KEY})")


@attrs.frozen
class Layer:
    """A file, or all overrides together."""

    tree: Mapping[str, Any]
    origin: Origin
    """Of the layer as a whole."""
    origins: Mapping[Key, Origin]
    removals: Mapping[Key, Origin] = attrs.field(factory=dict)
    """`~table`: taken out before the layer's own values are laid."""

    def origin_of(self, key: Key) -> Origin:
        return self.origins.get(key, self.origin)


def read_layers(arguments: Sequence[str | Path]) -> list[Layer]:
    """Files in the order they are laid, then one layer of overrides if there are any."""
    files: list[Path] = []
    overrides: list[str] = []
    for argument in arguments:
        if isinstance(argument, str) and argument.startswith("-"):
            raise ConfigError(f"{argument}: no such option; settings are given as LAYER.toml, key.path=value or ~table")
        if isinstance(argument, str) and (_OVERRIDE.fullmatch(argument) or argument.startswith("~")):
            overrides.append(argument)
        else:
            files.append(Path.cwd() / argument)
    laid: dict[Path, Layer] = {}
    for file in files:
        _lay_file(file, laid, chain=())
    layers = list(laid.values())
    return [*layers, _override_layer(overrides)] if overrides else layers


def _lay_file(file: Path, laid: dict[Path, Layer], *, chain: tuple[Path, ...]) -> None:
    """What the file extends first, then the file. One already laid keeps its place."""
    identity = file.resolve()
    if identity in chain:
        names = " -> ".join(shown(link) for link in (*chain[chain.index(identity) :], identity))
        raise ConfigError(f"extends goes in a circle: {names}; take one of them out")
    if identity in laid:
        return
    layer = read_file(file)
    for base in _bases(layer):
        _lay_file(base, laid, chain=(*chain, identity))
    laid[identity] = attrs.evolve(layer, tree={key: value for key, value in layer.tree.items() if key != "extends"})


def _bases(layer: Layer) -> list[Path]:
    bases = layer.tree.get("extends", [])
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(f'extends must be an array of files, like ["base.toml"] ({layer.origin_of(("extends",))})')
    return [layer.origin.folder / base for base in bases]


def read_file(file: Path) -> Layer:
    """ConfigError with the absolute path where there is none, or where it is no TOML."""
    file = Path(os.path.normpath(file.absolute()))
    try:
        text = file.read_bytes().decode("utf-8-sig")  # some editors on Windows begin a file with a byte-order mark
        tree = tomli.loads(text)
    except FileNotFoundError:
        raise ConfigError(_missing(file)) from None
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is no TOML file: byte {error.start} is not UTF-8") from None
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{shown(file)} is no TOML: {error}") from None
    return Layer(
        tree=tree,
        origin=Origin(file, folder=file.parent),
        origins={key: Origin(file, line, folder=file.parent) for key, line in positions(text).items()},
    )


def _missing(file: Path) -> str:
    message = f"there is no file {file}"
    if not file.parent.is_dir():
        return f"{message}, nor its folder"
    return message + hint(file.name, [path.name for path in file.parent.glob("*.toml")])


def _override_layer(arguments: Sequence[str]) -> Layer:
    tree: dict[str, Any] = {}
    origins: dict[Key, Origin] = {}
    removals: dict[Key, Origin] = {}
    for argument in arguments:
        origin = Origin(override=argument)
        if removal := _REMOVAL.fullmatch(argument):
            removals[parse_key(removal[1])] = origin
        elif override := _OVERRIDE.fullmatch(argument):
            named = parse_key(override[1])
            for key, value in _leaves(named, parse_value(override[2])):
                _lay(tree, key, value)
                origins.update({key[:length]: origin for length in range(1, len(key) + 1)})
            origins[named] = Origin(override=argument, raw=override[2])
        else:
            raise ConfigError(f"{argument}: a removal reads ~table, like ~trackers.wandb")
    return Layer(tree, Origin(override=" ".join(arguments)), origins, removals)


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value


def _lay(tree: dict[str, Any], key: Key, value: Any) -> None:
    """The later of two overrides of a key wins."""
    *tables, name = (str(part) for part in key)
    for table in tables:
        if not isinstance(tree.get(table), dict):
            tree[table] = {}
        tree = tree[table]
    tree[name] = value


def parse_key(text: str) -> Key:
    """optimizer.groups.head, or with quotes where a part is no bare key."""
    try:
        tree = tomli.loads(f"{text} = 0")
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{text} is no key: {error}") from None
    return next(_leaves((), tree))[0]


def parse_value(text: str) -> Any:
    """TOML where it parses as one value, else the text itself."""
    try:
        parsed = tomli.loads(f"value = {text}")
    except tomli.TOMLDecodeError:
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text
