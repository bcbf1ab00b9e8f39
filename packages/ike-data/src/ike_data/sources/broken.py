"""A file that can't be read on: raised where that is found, and a DataError where the line is known."""


class BrokenFileError(Exception):
    """Its text is the reason. All that could be read before it has been handed on."""
