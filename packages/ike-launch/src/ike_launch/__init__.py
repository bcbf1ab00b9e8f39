"""The `ike-launch` command: settings in, ranks out. The command is the interface; importing this loads nothing."""

__all__: list[str] = []
