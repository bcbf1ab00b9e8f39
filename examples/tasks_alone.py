"""ike-tasks in a plain torch loop: packed rows, and log-probabilities of the learned tokens alone.

python examples/tasks_alone.py MODEL          # a folder, or a hub name
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ike_core import Example, Vocabulary
from ike_tasks import Packed, target_logprobs

ROWS = [
    ("Once upon a time there was a", " little girl."),
    ("Tom saw a big", " dog, and the dog was happy."),
    ("The sun was", " hot."),
]


def main(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    vocabulary = Vocabulary(size=module.config.vocab_size, pad=0)
    collate = Packed()
    model = collate.prepare(module)
    batch = collate.collate([example(tokenizer, *row) for row in ROWS], vocabulary)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    for step in range(5):
        loss = -target_logprobs(model, batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.3f} over {len(batch['targets'])} tokens in one row")


def example(tokenizer, prompt, response):
    """The response's tokens are learned, the prompt's are read."""
    read, learned = tokenizer(prompt).input_ids, tokenizer(response, add_special_tokens=False).input_ids
    return Example.of([*read, *learned], [0.0] * len(read) + [1.0] * len(learned))


if __name__ == "__main__":
    main(sys.argv[1])
