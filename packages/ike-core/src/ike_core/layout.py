"""How a packed row is made of documents: host integers that travel with the batch to the attention function."""

import attrs


@attrs.frozen
class Tree:
    """A document as the model sees it: a trunk, and branches that each see the trunk and themselves.

    A document without branches is `Tree(n)`. Tokens lie trunk first, then branch after branch.
    """

    trunk: int
    """Tokens of the trunk."""
    branches: tuple[int, ...] = ()
    """Tokens of each branch."""

    @property
    def size(self) -> int:
        """Tokens in all; the trunk counts once."""
        return self.trunk + sum(self.branches)

    @property
    def longest_path(self) -> int:
        """Tokens of the longest sequence that one attention head looks over."""
        return self.trunk + max(self.branches, default=0)


@attrs.frozen
class Layout:
    """The trees of every row, end to end. What is left of a row is filler, which sees nothing."""

    rows: tuple[tuple[Tree, ...], ...]

    @property
    def longest_path(self) -> int:
        return max((tree.longest_path for row in self.rows for tree in row), default=0)
