"""ike-tasks in a plain torch loop: DPO on trees, the prompt computed once for both answers.

python examples/preferences_alone.py MODEL          # a folder, or a hub name
"""

import copy
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ike_core import Vocabulary, preference_pair
from ike_tasks import Packed, pair_logprobs
from ike_tasks.pair_losses import sigmoid

ROWS = [
    ("Once upon a time there was a", " little girl.", " girl girl."),
    ("Tom saw a big", " dog, and the dog was happy.", " big big the."),
    ("The sun was", " hot.", " was sun."),
]


def main(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    collate = Packed()
    reference = collate.prepare(copy.deepcopy(module).requires_grad_(False))
    model = collate.prepare(module)
    pairs = [preference_pair(*tokens(tokenizer, *row)) for row in ROWS]
    batch = collate.collate(pairs, Vocabulary(size=module.config.vocab_size, pad=0))
    reference_E2 = pair_logprobs(reference, batch)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    for step in range(5):
        ratios_E2 = pair_logprobs(model, batch) - reference_E2
        loss = sigmoid(*ratios_E2.unbind(1), beta=0.5).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.3f} over {len(pairs)} pairs, {batch['input_ids'].numel()} tokens")


def tokens(tokenizer, prompt, *answers):
    """Of the prompt, and of the answers as they go on from it."""
    return tokenizer(prompt).input_ids, *(tokenizer(text, add_special_tokens=False).input_ids for text in answers)


if __name__ == "__main__":
    main(sys.argv[1])
