"""What the model is given: tensors, the layout of their rows, and weights counted on the host."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ike_core.examples import AnyExample, Comparison
from ike_core.layout import Layout


@attrs.frozen
class Vocabulary:
    """The ids that collating and generating need: plain integers, no tokenizer in the loop."""

    size: int
    """Ids are below this."""
    pad: int
    bos: int | None = None
    eos: int | None = None
    added: int = 0
    """How many were added to the tokenizer's own (tokenizer.add_tokens): the model's embeddings grow to fit."""


@attrs.frozen
class Batch:
    """One micro-batch. `batch["input_ids"]` reads a tensor.

    ike's own collates give input_ids_RT, position_ids_RT, attention_mask, and, as flat indices into R*T, what is
    supervised: `predictors` [N] (where the model has just read what comes before), `targets` [N], `target_weights` [N]
    (token weight x row weight), `token_weights` [N] (without the row's), `target_paths` [N] (which of the batch's paths
    a target belongs to; an example is one path, a comparison one a branch) and `ends` [P] (the last token of every
    path). A target in the trunk of a tree belongs to the first path; the further paths that it lies on are
    `shared_paths` [S], and it itself `shared_targets` [S], an index into N. Of every example of the batch:
    `row_weights` [E] and `margins` [E] (0 where it is no comparison).
    """

    tensors: Mapping[str, Any]
    weights: Mapping[str, float]
    """'tokens', 'examples', 'pairs', or the objective's own: what the means of this micro-batch are divided by."""
    layout: Layout | None = None
    """None: rows are padded and `attention_mask` says where."""

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name]


def weigh(examples: Iterable[AnyExample]) -> dict[str, float]:
    """The standard weights of some examples, counted on the host.

    tokens: sum of token weight x row weight over supervised positions that have a predecessor; examples: how many;
    pairs: the row weights of the comparisons, summed.
    """
    tokens, count, pairs = 0.0, 0, 0.0
    for example in examples:
        tokens += example.supervised
        count += 1
        pairs += example.weight if isinstance(example, Comparison) else 0.0
    return {"tokens": tokens, "examples": float(count), "pairs": pairs}
