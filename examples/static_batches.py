"""ike-data in a training loop of your own: rows to examples, examples to packed numpy batches of one static shape.

python examples/static_batches.py MODEL [ROWS.jsonl]     # MODEL: a folder with a tokenizer, or a hub name
"""

import sys
from pathlib import Path

import numpy as np

from ike_core import Skip
from ike_data import HFTokenizer, InstructionProcessor, StaticBatches, read_records

ROWS = Path(__file__).with_name("rows.jsonl")


def main(model, rows=str(ROWS)):
    tokenizer = HFTokenizer(path=model)
    examples = list(read_examples(rows, InstructionProcessor(tokenizer=tokenizer)))
    batches = StaticBatches(
        examples=examples, rows=2, tokens=256, pad=tokenizer.vocabulary.pad, seed=17, too_long="split"
    )
    for number, batch in enumerate(batches.epoch(0)):
        # loss = (cross_entropy(model(batch.input_ids, batch.positions, mask), batch.targets) * batch.weights).sum()
        mask = attention_mask(batch.segments)
        print(f"batch {number}: {mask.shape}, {batch.tokens} tokens, {batch.weights.sum():g} learned")


def read_examples(rows, processor):
    for source, record in read_records([rows]):
        for example in processor.process(record):
            if isinstance(example, Skip):
                print(f"{source}: not used: {example.reason}")
            else:
                yield example


def attention_mask(segments):
    """[rows, tokens, tokens]: who sees whom. Causal, and never across documents."""
    causal = np.tril(np.ones((segments.shape[1],) * 2, bool))
    return causal & (segments[:, :, None] == segments[:, None, :])


if __name__ == "__main__":
    main(*sys.argv[1:])
