"""ike-data alone: rows to examples, and which of their tokens are learned.

python examples/data_alone.py MODEL [ROWS.jsonl]     # MODEL: a folder with a tokenizer, or a hub name
"""

import sys
from pathlib import Path

from ike_core import Skip
from ike_data import HFTokenizer, InstructionProcessor, read_records

ROWS = Path(__file__).with_name("rows.jsonl")


def main(model, rows=str(ROWS)):
    tokenizer = HFTokenizer(path=model)
    processor = InstructionProcessor(tokenizer=tokenizer)
    for source, record in read_records([rows]):
        for example in processor.process(record):
            print(f"{source}: {example.reason if isinstance(example, Skip) else shown(example, tokenizer)}")


def shown(example, tokenizer):
    tokens, weights = example.trunk.tokens, example.trunk.weights
    learned = tokenizer.decode(token for token, weight in zip(tokens, weights, strict=True) if weight)
    return f"{len(tokens)} tokens, learned: {learned!r}"


if __name__ == "__main__":
    main(*sys.argv[1:])
