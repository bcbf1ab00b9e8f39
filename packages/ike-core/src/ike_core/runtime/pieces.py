"""Where this rank's part of every tensor lies, whatever shards it."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import torch
from torch import Tensor, nn

from ike_core.fragments import BUFFER, FROZEN


@attrs.frozen(kw_only=True)
class Piece:
    """This rank's part of a parameter that learns."""

    name: str
    shape: tuple[int, ...]
    start: int
    """Of the part, in the flattened parameter."""
    count: int
    flat: Tensor
    """What the optimizer holds: its state is kept by this tensor, and has its shape."""
    offset: int
    """Of the part, in `flat`."""
    group: int
    """Number of the optimizer's group."""
    is_whole_copy: bool
    """Every rank holds the same; it is saved by one of them."""

    def of(self, tensor: Tensor) -> Tensor:
        """The part of `flat`, or of a state that is shaped like it; a view."""
        return tensor.detach().view(-1).narrow(0, self.offset, self.count)


@attrs.frozen(kw_only=True)
class Still:
    """This rank's part of a tensor that no optimizer holds."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    values: Tensor
    """1-D, a view."""
    is_whole_copy: bool


def whole_pieces(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[Piece]:
    """Of an optimizer over the module's own parameters."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [
        Piece(
            name=names[id(parameter)],
            shape=tuple(parameter.shape),
            start=0,
            count=parameter.numel(),
            flat=parameter,
            offset=0,
            group=number,
            is_whole_copy=True,
        )
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    ]


def whole_stills(module: nn.Module, learning: Iterable[str]) -> list[Still]:
    """Parameters that are not among `learning`, and the buffers that are saved; of a module that lies whole."""
    held = set(learning)
    frozen = [(name, FROZEN, tensor) for name, tensor in module.named_parameters() if name not in held]
    buffers = [(name, BUFFER, tensor) for name, tensor in saved_buffers(module)]
    return [whole_still(name, kind, tensor) for name, kind, tensor in [*frozen, *buffers]]


def whole_still(name: str, kind: str, tensor: Tensor) -> Still:
    values = tensor.detach().view(-1) if tensor.is_contiguous() else tensor.detach().contiguous().view(-1)
    return Still(name=name, kind=kind, shape=tuple(tensor.shape), start=0, values=values, is_whole_copy=True)


def saved_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The persistent ones, each once."""
    unsaved = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, child in module.named_modules()
        for name in child._non_persistent_buffers_set  # torch has no public name for it
    }
    yield from ((name, tensor) for name, tensor in module.named_buffers() if name not in unsaved)


def dealt(sizes: Mapping[str, int], ranks: int) -> Callable[[str], int]:
    """Which rank saves what all of them hold: the largest first, each to the rank that has least."""
    loads, owner = [0] * ranks, dict[str, int]()
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        owner[name] = min(range(ranks), key=loads.__getitem__)
        loads[owner[name]] += sizes[name]
    return owner.__getitem__
