"""ike-tasks inside transformers' Trainer: only the collator and the loss are ike's.

python examples/preferences_trainer.py MODEL          # a folder, or a hub name
"""

import copy
import sys
import tempfile

import torch
from preferences_alone import ROWS, tokens
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from ike_core import Batch, Vocabulary, preference_pair
from ike_tasks import Packed, pair_logprobs
from ike_tasks.pair_losses import sigmoid


class DPOTrainer(Trainer):
    reference = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        batch = self.placed(inputs["batch"])
        ratios_E2 = pair_logprobs(model, batch) - pair_logprobs(self.reference, batch)
        loss = sigmoid(*ratios_E2.unbind(1), beta=0.5).mean()
        return (loss, None) if return_outputs else loss

    def placed(self, batch):
        tensors = {name: tensor.to(self.args.device) for name, tensor in batch.tensors.items()}
        return Batch(tensors, batch.weights, batch.layout)


def main(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    collate, vocabulary = Packed(), Vocabulary(size=module.config.vocab_size, pad=0)
    trainer = DPOTrainer(
        model=collate.prepare(module),
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(), max_steps=5, per_device_train_batch_size=3, learning_rate=1e-4,
            lr_scheduler_type="constant", remove_unused_columns=False, report_to=[], save_strategy="no",
            logging_steps=1,
        ),
        train_dataset=[preference_pair(*tokens(tokenizer, *row)) for row in ROWS],
        data_collator=lambda pairs: {"batch": collate.collate(pairs, vocabulary)},
    )  # fmt: skip
    trainer.reference = collate.prepare(copy.deepcopy(module).requires_grad_(False))
    trainer.train()
    for line in trainer.state.log_history[:5]:
        print(f"step {line['step']}: loss {line['loss']:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
