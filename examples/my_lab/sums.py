"""A source of rows: row i is a function of i, so any row can be asked for on any rank, in any order, again."""

import random

import attrs


@attrs.frozen
class Sums:
    count: int = 1000
    digits: int = 2

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = random.Random(index)
        left, right = (draw.randrange(10**self.digits) for _ in range(2))
        return {"prompt": f"{left} + {right} = ", "response": str(left + right)}
