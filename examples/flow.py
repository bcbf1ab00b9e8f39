"""ike's words in a loop of one's own: no pipeline, torch's DistributedDataParallel.

Data, loss, ranks and checkpoint are each one line; what stands around them is the user's own.

ike-launch run --ranks 2 -- python examples/flow.py examples/train.toml user.base=MODEL
"""

import json
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

import ike_ckpt
from ike_ckpt import create_fileid
from ike_core import load_config, synchronize_workers
from ike_core.runtime import Padded
from ike_data import HFTokenizer, InstructionProcessor


def train_forward_step_fn(model, samples):
    return model(**samples).loss


config = load_config()
dist.init_process_group("gloo")
torch.manual_seed(config.run.seed)
tokenizer = HFTokenizer(path=config.user["base"])
processor = InstructionProcessor(tokenizer=tokenizer)
model = AutoModelForCausalLM.from_pretrained(config.user["base"], dtype=torch.float32)
parallel = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
save_checkpoint = partial(ike_ckpt.save_checkpoint, model)

rows = Path(config.data.train.files[0]).read_text().splitlines()[dist.get_rank() :: dist.get_world_size()]
for raw in map(json.loads, rows[:4]):
    samples = Padded().collate(list(processor.process(raw)), tokenizer.vocabulary).tensors
    loss = train_forward_step_fn(parallel, samples)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

synchronize_workers()
folder = save_checkpoint(file_id=create_fileid())
print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, saved {folder}")
dist.destroy_process_group()
