"""The tensors of a model folder one by one; of an adapter's those of its base, changed as it says."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ike_ckpt.weights import weight_files
from ike_core.adapters import WEIGHTS, Adapter, Change, holds_adapter
from ike_core.errors import CheckpointError

_TRANSPOSED = ("gpt2", "openai-gpt")
"""transformers' model types whose layers keep [inputs, outputs]; peft knows without its config saying so."""


@attrs.frozen
class ModelTensors:
    """Reads one tensor at a time, when it is asked for. Nothing in a file runs code.

    What an adapter changes is computed in float32 at least. A base may be an adapter's folder itself.
    """

    base_of: Callable[[Adapter], Path]
    """The folder of the model beneath an adapter."""
    dtype: torch.dtype | None = None
    """What floating-point tensors come in; None: as they are in the (base's) files."""
    grown: dict[int, int] = attrs.field(factory=dict, init=False)
    """Rows of a base's tensor -> rows of the one in its place: embeddings with added tokens."""
    added: dict[str, int] = attrs.field(factory=dict, init=False)
    """Rows of tensors that the base has not, by name: a new head."""

    def of(self, folder: Path) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor of all that a folder stands for; in a base's order, then what is new.

        Raises CheckpointError, naming it, for a file that can't be read or does not fit.
        """
        for name, tensor, kept in self._of(folder):
            yield name, tensor.to(self.dtype or kept) if tensor.is_floating_point() else tensor

    def _of(self, folder: Path) -> Iterator[tuple[str, Tensor, torch.dtype]]:
        """With the dtype that a tensor has in its file; one that was changed is wide."""
        if holds_adapter(folder):
            yield from self._adapted(Adapter.read(folder))
            return
        for file in weight_files(folder):
            with _opened(folder / file) as opened:
                for name in opened.keys():  # noqa: SIM118 not a dict
                    tensor = opened.get_tensor(name)
                    yield name, tensor, tensor.dtype

    def _adapted(self, adapter: Adapter) -> Iterator[tuple[str, Tensor, torch.dtype]]:
        base = self.base_of(adapter)
        with _opened(adapter.folder / WEIGHTS) as opened:
            changes = adapter.changes(opened.keys())
            roots = {name.partition(".")[0] for name, change in changes.items() if not change.whole}
            replaced: list[str] = []
            is_transposed = adapter.is_transposed or _model_type(base) in _TRANSPOSED
            for name, tensor, kept in self._of(base):
                change = changes.pop(name, None)
                if change is not None:
                    replaced += filter(None, [change.whole])
                    yield name, self._changed(adapter, name, tensor, change, opened, is_transposed=is_transposed), kept
                elif not adapter.is_classifier or name.partition(".")[0] in roots:  # which has not the base's head
                    yield name, tensor, kept
            for name, tensor in _left(adapter, base, changes, replaced, opened):
                self.added[name] = tensor.shape[0]
                yield name, tensor, tensor.dtype

    def _changed(
        self, adapter: Adapter, name: str, tensor: Tensor, change: Change, opened: Any, *, is_transposed: bool
    ) -> Tensor:
        wide = torch.promote_types(tensor.dtype, torch.float32)
        try:
            changed: Tensor = change.apply(
                tensor.to(wide), lambda part: opened.get_tensor(part).to(wide), is_transposed=is_transposed
            )
            if changed.shape[1:] != tensor.shape[1:] or (changed.shape != tensor.shape and not change.whole):
                raise RuntimeError(f"{list(changed.shape)} in its place")
        except RuntimeError as error:  # torch's own too, of shapes that don't go together
            raise CheckpointError(
                f"{adapter.folder / WEIGHTS} does not fit {name} {list(tensor.shape)} of {adapter.base}: {error}"
            ) from error
        if changed.shape != tensor.shape:
            self.grown[tensor.shape[0]] = changed.shape[0]
        return changed


def _left(
    adapter: Adapter, base: Path, changes: dict[str, Change], replaced: list[str], opened: Any
) -> Iterator[tuple[str, Tensor]]:
    """What the base has not: all but a tied weight's other name."""
    for name, change in changes.items():
        if not change.whole:
            raise CheckpointError(
                f"{adapter.folder / WEIGHTS} changes {name}, which is not in {base}; was it trained on another base? "
                "Where transformers changes names as it reads, from_pretrained(base).save_pretrained(new) makes a base "
                "to give by --base"
            )
        tensor = opened.get_tensor(change.whole)
        if not any(torch.equal(tensor, opened.get_tensor(other)) for other in replaced):
            yield name, tensor


def _model_type(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type"))
    except (OSError, ValueError):  # an adapter has none
        return ""


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as opened:
            yield opened
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from error
