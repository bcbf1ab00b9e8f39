"""A part named by `uses`: where its class is, and the table of its fields."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.importing import USES, load_object
from ike_core.config.instances import REFUSED
from ike_core.config.keys import Key, dotted
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Provenance
from ike_core.config.structure import Structurer
from ike_core.errors import ConfigError


@attrs.frozen
class Component:
    """A table with `uses`, core's own keys taken out. Nothing is imported before `build`."""

    path: str
    """Dotted place of the table: 'objective', 'hooks.ema'."""
    uses: str
    """'module:Name'"""
    table: Mapping[str, Any] = attrs.field(factory=dict)
    """The part's own fields, as the resolved tree has them."""
    key: Key = attrs.field(default=attrs.Factory(lambda self: tuple(self.path.split(".")), takes_self=True), repr=False)
    """`path`, a name a part."""
    reserved: frozenset[str] = attrs.field(default=frozenset({"uses"}), repr=False)
    """Keys that core takes from the table: no field of the class may be called so."""
    import_from: tuple[Path, ...] = attrs.field(default=(), repr=False)
    """Folders of the files that say `uses`; they stand behind what is installed."""
    provenance: Provenance = attrs.field(factory=Provenance, eq=False, repr=False)

    @property
    def is_default(self) -> bool:
        """Whether no layer says a word of it."""
        return all(self.provenance.origin((*self.key, name)).is_default for name in ("uses", *self.table))

    def build(self, *, tokenizer: Any = None, found: type | None = None, **defaults: Any) -> Any:
        """Imports the module and structures the table into the class; ConfigError names file and line of what is wrong.

        A field annotated `Tokenizer` that the table leaves out gets `tokenizer`; `defaults` fill fields that both the
        class has and the table leaves out. `found` is the class where Python has given it: nothing is imported then.
        What is a plain callable is returned as it is.
        """
        problems = Problems()
        part = self.build_into(problems, tokenizer=tokenizer, defaults=defaults, found=found)
        problems.settle(self.provenance)
        return part

    def build_into(
        self, problems: Problems, *, tokenizer: Any, defaults: Mapping[str, Any], found: type | None = None
    ) -> Any:
        """As `build`; what is wrong is added to `problems` instead of raised, and the part then not to be used."""
        return _Building(self, problems, tokenizer).part(self, defaults, found=found)


class _Building:
    """One part with the parts inside it, and all that is wrong with them."""

    def __init__(self, component: Component, problems: Problems, tokenizer: Any) -> None:
        self._component = component
        self._problems = problems
        self._tokenizer = tokenizer
        self._structurer = Structurer(component.provenance, problems, part=self._inner, reads_environment=True)

    def part(self, component: Component, defaults: Mapping[str, Any], *, found: Any = None) -> Any:
        is_imported = found is None
        if is_imported:
            found = self._import(component)
        if found is REFUSED:
            return REFUSED
        if not isinstance(found, type):
            return self._callable(component, found)
        if not attrs.has(found):
            return self._plain_class(component, found)
        for name in sorted(component.reserved & attrs.fields_dict(found).keys()):
            self._problems.add(
                (*component.key, "uses"),
                f' = "{component.uses}": its field {name} is one of ike\'s own keys here; give it another name',
            )
        return self._structurer.instances.of(
            component.key,
            found,
            component.table,
            defaults=defaults,
            tokenizer=self._tokenizer,
            called=component.uses if is_imported else "",
        )

    def _import(self, component: Component) -> Any:
        key, uses = (*component.key, "uses"), component.uses
        if not isinstance(uses, str) or not USES.fullmatch(uses):
            self._problems.add(key, f' = {briefly(uses)} must read "module:Name"')
            return REFUSED
        try:
            return load_object(uses, component.import_from)
        except ConfigError as error:
            self._problems.add(key, f' = "{uses}": {error}')
            return REFUSED

    def _inner(self, key: Key, table: Mapping[str, Any]) -> Any:
        """A part inside a part's table."""
        uses = table["uses"]
        own = {name: value for name, value in table.items() if name != "uses"}
        outer = self._component
        return self.part(
            attrs.evolve(outer, path=dotted(key), uses=uses, table=own, key=key, reserved=frozenset({"uses"})), {}
        )

    def _callable(self, component: Component, found: Any) -> Any:
        if not callable(found):
            kind = type(found).__name__
            self._problems.add(
                (*component.key, "uses"), f' = "{component.uses}" is a {kind}, not a class or a function'
            )
        return found if self._has_no_table(component, "a function") else REFUSED

    def _plain_class(self, component: Component, found: type) -> Any:
        if not self._has_no_table(component, "a class without attrs"):
            return REFUSED
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            self._problems.add(
                component.key,
                f": {component.uses} can't be made without arguments ({error}); write @attrs.frozen over it",
            )
            return REFUSED
        return found()

    def _has_no_table(self, component: Component, kind: str) -> bool:
        for name in component.table:
            self._problems.add(
                (*component.key, name),
                f" can't be given: {component.uses} is {kind}, which has no fields; write @attrs.frozen over a class",
            )
        return not component.table
