"""Two teachers: cover what the large one says, never say what the careful one would not, and keep to the rows."""

import attrs

from ike_core import Mean, StepOutput
from ike_tasks import CrossEntropy, MixedLoss, ReverseKL, TeacherLoss, teacher_logits, token_loss_sum


@attrs.frozen
class TwoTeachers:
    trust: float = 0.5

    def __call__(self, model, batch, context):
        large = TeacherLoss(teacher=teacher_logits(context.frozen["large"], batch), temperature=2.0)
        careful = TeacherLoss(teacher=teacher_logits(context.frozen["careful"], batch), divergence=ReverseKL())
        terms = {"large": (self.trust, large), "careful": (1 - self.trust, careful), "rows": (0.1, CrossEntropy())}
        total, parts = token_loss_sum(model, batch, MixedLoss(terms))
        tokens = batch.weights["tokens"]
        return StepOutput(Mean(total, tokens), {name: Mean(part, tokens) for name, part in parts.items()})
