"""Something else per step: two losses take turns.

ike-launch run --ranks 2 -- python examples/alternating.py examples/small.toml
"""

from my_lab.focal import Focal

from ike_core import TrainingPipeline
from ike_tasks import SFT


class Alternating(TrainingPipeline):
    turns = (SFT(), Focal(gamma=2.0))

    def train_step(self, step):
        return self.update(step, self.accumulate(step, self.turns[step.step % 2]))


if __name__ == "__main__":
    print(f"last loss {Alternating().run():.3f}")
