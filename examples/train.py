"""Four arguments. What they leave open is in the settings.

ike-launch run --ranks 2 -- python examples/train.py examples/train.toml user.base=MODEL
"""

import torch
from transformers import AutoModelForCausalLM

from ike_core import TrainingPipeline, load_config
from ike_data import InstructionProcessor


def train_forward_step_fn(model, samples):
    return model(**samples).loss


model = AutoModelForCausalLM.from_pretrained(load_config().user["base"], dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data_processor_classes = {"train": InstructionProcessor}

pipeline = TrainingPipeline(
    model=model,
    train_forward_step_fn=train_forward_step_fn,
    data_processor_classes=data_processor_classes,
    optimizer=optimizer,
)
loss = pipeline.run()
print(f"{pipeline.file_id}: last loss {loss:.3f}")
