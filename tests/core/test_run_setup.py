"""What a run knows of the packages that made it."""

from importlib import metadata

from ike_core.run_setup import RunSetup


def test_versions_leave_out_what_is_not_installed_or_runs_from_its_source(monkeypatch) -> None:
    def version(name: str) -> str:
        if name in ("ike-core", "deepspeed"):
            raise metadata.PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(metadata, "version", version)
    assert RunSetup.versions.fget(None) == {"torch": "1.2", "transformers": "1.2"}
