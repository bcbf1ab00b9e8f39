"""ike-ckpt in a plain torch loop: a folder under an id that every rank shares, whole or absent.

python examples/ckpt_alone.py [ROOT]          # ROOT: where runs lie
"""

import sys

import torch

from ike_ckpt import create_fileid, read_weights, save_checkpoint


def main(root="runs"):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 4)
    targets = inputs.sum(1, keepdim=True)
    file_id = create_fileid("linear", root=root)
    for step in range(1, 21):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            folder = save_checkpoint(model, file_id=file_id, step=step, root=root)
            print(f"step {step}: loss {loss.item():.4f}, saved {folder}")
    again = torch.nn.Linear(4, 1)
    again.load_state_dict(read_weights(folder / "model"))
    print("read back, equal:", torch.equal(again(inputs), model(inputs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
