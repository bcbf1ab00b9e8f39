"""Whether the model knows every token of the data: an id beyond its embeddings is an index error that names nothing."""

from collections.abc import Iterator

from ike_core.errors import DataError
from ike_core.examples import AnyExample
from ike_core.interfaces import DatasetParts


def check_tokens(name: str, parts: DatasetParts, embeddings: int) -> None:
    """DataError with the first row that holds a token which the model has no embedding for; `embeddings` 0: unknown."""
    if not 0 < embeddings <= parts.largest_token:
        return
    found = next((example for example in _examples(parts) if _largest(example) >= embeddings), None)
    where = f"{found.source}: " if found is not None else ""
    raise DataError(
        f"{where}the {name} data hold token {parts.largest_token}, and the model has {embeddings} embeddings, so ids "
        f"below {embeddings}; use the model's own tokenizer (tokenizer.path), or a processor whose ids are the model's"
    )


def _examples(parts: DatasetParts) -> Iterator[AnyExample]:
    for dataset in (parts.kept, parts.held_out):
        if dataset is not None:
            yield from (dataset[index] for index in range(len(dataset)))


def _largest(example: AnyExample) -> int:
    return max(max(segment.tokens, default=0) for segment in (example.trunk, *example.branches))
