"""The errors that are meant for the user: what is wrong, where, and what to do."""


class IkeError(Exception):
    """Base of all errors raised for the user; `exit_code` is what a command ends with."""

    exit_code = 1


class ConfigError(IkeError):
    """A setting that can't be used; raised before any process starts."""

    exit_code = 2


class DataError(IkeError):
    """Rows, files or templates that can't be used."""

    exit_code = 3


class CheckpointError(IkeError):
    """A checkpoint that can't be written or read."""

    exit_code = 4


class LaunchError(IkeError):
    """Ranks that could not be started or that could not meet."""

    exit_code = 5


class TrainingError(IkeError):
    """A run that can't go on."""

    exit_code = 6
