"""`load_config`: the command line's layers and overrides to the settings of a run."""

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.annotations import required
from ike_core.config.config import Config
from ike_core.config.defaults import default_layer, fill, inherit_training_data
from ike_core.config.instances import as_text
from ike_core.config.interpolation import interpolate
from ike_core.config.keys import Key, put
from ike_core.config.layers import Layer, read_layers
from ike_core.config.merge import Merged
from ike_core.config.parts import check_sources, settle_parts
from ike_core.config.paths import resolve_files, resolve_models
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import absolute
from ike_core.config.schema import places
from ike_core.config.sections import Sections
from ike_core.config.structure import Structurer
from ike_core.config.tables import Tables
from ike_core.errors import ConfigError


def load_config(*arguments: str | Path, user: type | None = None) -> Config:
    """The settings that LAYER.toml, key.path=value and ~table give, left to right; no part is imported.

    Without arguments those of the command line. `user`, an attrs class, gives `[user]` its shape.
    ConfigError names every setting that can't be used, with its file and line.
    """
    _check_call(arguments, user)
    layers = read_layers(arguments or sys.argv[1:])
    problems = Problems()
    merged = Merged(problems)
    if not any(_import_from_said(layer) is not None for layer in layers):
        merged.lay(default_layer())
    for layer in layers:
        merged.lay(layer)
    import_from = _import_from(layers)
    _resolve(merged, problems, import_from)
    tables = Tables(merged.provenance, problems, import_from)
    sections = tables.sections(merged.tree)
    own, settled = _user(merged, problems, user)
    if problems:  # then what is wrong with parts' tables is said in the same breath, not in a second round
        check_sources(merged.tree, import_from, problems)
    problems.settle(merged.provenance)
    for key, value in {**tables.settled, **settled}.items():
        put(merged.tree, key, value)
    typed = {field.name: getattr(sections, field.name) for field in attrs.fields(Sections)}
    return Config(**typed, user=own, tree=merged.tree, provenance=merged.provenance)


def _check_call(arguments: tuple[object, ...], user: object) -> None:
    for argument in arguments:
        if not isinstance(argument, str | Path):
            raise ConfigError(
                f"load_config was given a {type(argument).__name__}, {briefly(argument)}; it takes files, "
                'key.path=value and ~table, like load_config("base.toml", "run.seed=3")'
            )
    if user is not None and not (isinstance(user, type) and attrs.has(user)):
        raise ConfigError(f"load_config(user=...) takes an attrs class, not {user!r}; decorate one by @attrs.frozen")


def check_parts_by_source(config: Config) -> tuple[str, ...]:
    """ConfigError for fields that a part's source does not have; notes for the parts that could not be checked.

    Nothing is imported.
    """
    problems = Problems()
    notes = check_sources(dict(config.tree), config.run.import_from, problems)
    problems.settle(config.provenance)
    return notes


def _resolve(merged: Merged, problems: Problems, import_from: tuple[Path, ...]) -> None:
    """The tree as it will be written: inherited, filled in, interpolated, paths absolute."""
    tree, provenance = merged.tree, merged.provenance
    inherit_training_data(merged)
    fill(merged)
    run = tree["run"]
    if isinstance(run, dict) and _is_strings(run["import_from"]):
        run["import_from"] = [str(folder) for folder in import_from]
    for place in list(places(tree)):
        if required(place.annotation) is str:
            put(tree, place.key, as_text(place.value, provenance.origin(place.key)))
    settle_parts(tree, provenance, import_from)
    interpolate(tree, problems)
    resolve_files(tree, provenance)
    resolve_models(tree, provenance, problems)
    _refuse_nonfinite(tree, (), problems)


def _import_from(layers: Iterable[Layer]) -> tuple[Path, ...]:
    """Folders where a part's module may be: of each layer that says a `uses`, or what a resolved one names instead."""
    folders: list[Path] = []
    for layer in layers:
        said = _import_from_said(layer)
        if said is not None:
            folders += [Path(absolute(folder, layer.origin.folder)) for folder in said]
        elif _says_uses({name: table for name, table in layer.tree.items() if name != "user"}):
            folders.append(layer.origin.folder)
    return tuple(dict.fromkeys(folders))


def _import_from_said(layer: Layer) -> list[str] | None:
    """What a resolved file says."""
    run = layer.tree.get("run")
    said = run.get("import_from") if isinstance(run, dict) and layer.origin.file else None
    return said if _is_strings(said) else None


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _says_uses(table: Mapping[str, Any]) -> bool:
    return "uses" in table or any(_says_uses(inner) for inner in table.values() if isinstance(inner, dict))


def _user(merged: Merged, problems: Problems, cls: type | None) -> tuple[Any, Mapping[Key, Any]]:
    """`[user]`, and what of it the resolved tree says otherwise."""
    table = merged.tree.get("user", {})
    if not isinstance(table, dict):
        problems.add(("user",), f" = {briefly(table)} must be a table")
    if cls is None:
        return table, {}
    structurer = Structurer(merged.provenance, problems, reads_environment=True)
    return structurer.instances.of(("user",), cls, table), structurer.settled


def _refuse_nonfinite(value: Any, key: Key, problems: Problems) -> None:
    """No setting of anyone's is nan or inf."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_nonfinite(inner, (*key, name), problems)
    elif isinstance(value, float) and not math.isfinite(value):
        problems.add(key, f" = {value} is no finite number")
