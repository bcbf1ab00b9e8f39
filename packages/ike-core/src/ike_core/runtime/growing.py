"""Embeddings for tokens that were added to a tokenizer: as many rows more, each the mean of the old ones.

A mean row leaves what the model says of other tokens as it was, within what one more term of the softmax takes; rows
drawn at random can take nearly all of it.  Hewitt 2021, nlp.stanford.edu/~johnhew/vocab-expansion.html
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from ike_core.batch import Vocabulary
from ike_core.errors import ConfigError
from ike_core.runtime.modules import embeddings


@torch.no_grad()
def grow_embeddings(module: nn.Module, vocabulary: Vocabulary | None) -> tuple[int, int] | None:
    """Collective where the module is built for ZeRO-3. Rows before and after; None where nothing was to be done.

    Input and output embeddings, the output's bias too, and config.vocab_size; parameters stay the same objects. Only
    for tokens that were added: a tokenizer that never fitted the model is a mistake, which the data's check names.
    ConfigError where the model is too small and none of transformers'.
    """
    if vocabulary is None or not vocabulary.added:
        return None
    if not isinstance(module, PreTrainedModel):
        _refuse_small(module, vocabulary)
        return None
    before = _input(module).num_embeddings
    if vocabulary.size <= before:
        return None
    means = [_mean(parameter) for parameter in _by_token(module)]
    module.resize_token_embeddings(vocabulary.size, mean_resizing=False)
    for parameter, mean in zip(_by_token(module), means, strict=True):
        with _whole([parameter], are_changed=True):
            parameter[before:] = mean
    return before, vocabulary.size


def _input(module: PreTrainedModel) -> nn.Embedding:
    found: Any = module.get_input_embeddings()
    return found  # type: ignore[no-any-return]


def _by_token(module: PreTrainedModel) -> list[Tensor]:
    """What has a row a token, tied ones once."""
    output: Any = module.get_output_embeddings()
    found: list[Tensor] = [_input(module).weight]
    if output is not None:
        found += [output.weight, *([] if output.bias is None else [output.bias])]
    return list(dict.fromkeys(found))


def _mean(parameter: Tensor) -> Tensor:
    """Over the rows, summed in float64."""
    with _whole([parameter], are_changed=False):
        return parameter.mean(0, dtype=torch.float64).to(parameter.dtype)


@contextmanager
def _whole(parameters: Sequence[Tensor], *, are_changed: bool) -> Iterator[None]:
    """Collective under ZeRO-3, whose ranks each hold a part; what is changed is rank 0's."""
    if not is_deepspeed_zero3_enabled():
        yield
        return
    import deepspeed  # 2.4 s, and only ZeRO-3 needs it here

    with deepspeed.zero.GatheredParameters(list(parameters), modifier_rank=0 if are_changed else None):
        yield


def _refuse_small(module: nn.Module, vocabulary: Vocabulary) -> None:
    rows = embeddings(module)
    if 0 < rows < vocabulary.size:
        raise ConfigError(
            f"tokenizer.add_tokens: the tokenizer has {vocabulary.size} tokens with them, and the model "
            f"({type(module).__name__}) {rows} embeddings, which ike grows in models of transformers only; make it "
            f"with {vocabulary.size}"
        )
