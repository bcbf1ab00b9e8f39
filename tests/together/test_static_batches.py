"""A plain torch loop over ike-data's static batches learns what the documents say, each on its own."""

import random
import runpy
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from ike_core import Example
from ike_data import StaticBatches

ROOT = Path(__file__).resolve().parents[2]


@torch.inference_mode()
def test_the_loss_of_packed_rows_is_that_of_the_documents_alone(stories: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float64, attn_implementation="sdpa").eval()
    chance = random.Random(1)
    drawn = [[chance.randrange(3, 500) for _ in range(size)] for size in (5, 30, 12, 17, 2, 9, 21)]
    examples = [Example.of(ids, [float(place > 1) for place in range(len(ids))], weight=0.5) for ids in drawn]
    alone = 0.0
    for ids in drawn:
        logits = model(torch.tensor([ids])).logits[0]
        losses = cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
        alone += 0.5 * float(losses[1:].sum())  # the first two tokens are only read
    attention_mask = runpy.run_path(str(ROOT / "examples" / "static_batches.py"))["attention_mask"]
    packed = 0.0
    for batch in StaticBatches(examples=examples, rows=2, tokens=32).epoch(0):
        mask = torch.from_numpy(attention_mask(batch.segments))[:, None]
        ids, positions, targets = (
            torch.from_numpy(array.astype(np.int64)) for array in (batch.input_ids, batch.positions, batch.targets)
        )
        logits = model(ids, attention_mask=mask, position_ids=positions).logits
        losses = cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        packed += float((losses * torch.from_numpy(batch.weights)).sum())
    assert abs(packed - alone) < 1e-9 * alone
