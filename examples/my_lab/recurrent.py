"""A model of our own: any module that reads ids and gives logits. ike pads the rows, as it can't pack them."""

import attrs
from torch import nn


@attrs.frozen
class Recurrent:
    """A GRU with tied embeddings, from scratch; seeded by run.seed, so alike on every rank."""

    width: int = 64

    def build(self, context):
        return RecurrentModel(context.vocabulary.size, self.width).to(context.dtype)


class RecurrentModel(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids, attention_mask=None):
        hidden_BTD, _ = self.memory(self.embedding(input_ids))
        return self.head(hidden_BTD)
