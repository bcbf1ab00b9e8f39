"""Answers with a yes or a no, as objectives that learn from such want them."""

from array import array
from collections.abc import Sequence

import attrs

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, LabelledExample, Segment


def labelled(examples: Sequence[AnyExample]) -> list[LabelledExample]:
    """Rows with a label as they are; of pairs first all chosen answers, as good ones, then all rejected ones, as bad.

    DataError for anything else.
    """
    rows = list[LabelledExample]()
    pairs = list[Comparison]()
    for example in examples:
        if isinstance(example, LabelledExample):
            rows.append(example)
        elif isinstance(example, Comparison) and len(example.answers) == 2:
            pairs.append(example)
        else:
            raise DataError(
                f"{example.source or 'an example'} is neither an answer with a label nor a pair; let "
                'data.train.processor be { uses = "ike_data:FeedbackProcessor" }, or PreferenceProcessor with rows of '
                "two answers"
            )
    return [*rows, *(_of_pair(pair, number) for number in (0, 1) for pair in pairs)]


def _of_pair(pair: Comparison, number: int) -> LabelledExample:
    prompt, begun = split(pair.prompt)
    answer = _joined(begun, pair.answers[number])
    return LabelledExample(
        prompt,
        answer,
        desirable=number == 0,
        source=pair.source,
        index=pair.index,
        weight=pair.weight,
        fields=pair.fields,
    )


def mismatched(rows: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Each prompt with the answer of the next row, the last one's with the first's.

    One that is longer than the longest of the rows is cut at the prompt's beginning: no more than they ask of memory.
    """
    longest = max(len(row) for row in rows)
    return [_with_answer(row, rows[(place + 1) % len(rows)].answer, longest) for place, row in enumerate(rows)]


def _with_answer(row: LabelledExample, answer: Segment, longest: int) -> LabelledExample:
    kept = max(0, longest - len(answer))
    tokens = row.prompt.tokens[len(row.prompt) - min(kept, len(row.prompt)) :]
    return attrs.evolve(row, prompt=Segment.prompt(tokens), answer=answer)


def split(trunk: Segment) -> tuple[Segment, Segment]:
    """What is read, and what two answers begin with alike: from the first supervised token on."""
    border = next((place for place, weight in enumerate(trunk.weights) if weight), len(trunk))
    return Segment.prompt(trunk.tokens[:border]), Segment(trunk.tokens[border:], trunk.weights[border:])


def _joined(first: Segment, second: Segment) -> Segment:
    tokens, weights = array("i", first.tokens), array("f", first.weights)
    tokens.extend(second.tokens)
    weights.extend(second.weights)
    return Segment(tokens, weights)
