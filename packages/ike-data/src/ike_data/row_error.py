"""A row that can't be used: raised where that is found, and a Skip where the row is read."""


class RowError(Exception):
    """Its text is the reason in the ledger; what stands before the first colon is what rows are counted by."""
