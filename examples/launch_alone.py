"""ike-launch with a script that knows nothing of ike: what torchrun sets is set.

ike-launch run --ranks 2 -- python examples/launch_alone.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(float(dist.get_rank() + 1))
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum of all ranks, counted from 1, is {total.item():g}")
dist.destroy_process_group()
