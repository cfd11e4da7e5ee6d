"""Lays out the packages in a folder as they are installed, without installing: `python tests/tools/package_folder.py FOLDER`.

`hindcast.core`, `hindcast.events` and the others are links; the distribution's metadata names the plugins. For the type
checker, which does not see an editable install, and for machines where nothing can be installed. Needs Python 3.11 alone.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "events", "storage", "actors", "learner", "app")


def lay_out(folder: Path) -> None:
    """Make the links, and the metadata of `pyproject.toml` as it is now."""
    package = folder / "hindcast"
    package.mkdir(parents=True, exist_ok=True)
    for name, source in {**{name: ROOT / name for name in FOLDERS}, "api": ROOT / "app" / "api"}.items():
        link = package / name
        link.unlink(missing_ok=True)
        link.symlink_to(source)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / f"hindcast-{project['version']}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: hindcast\nVersion: {project['version']}\n"
    )
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n\n".join(groups) + "\n")


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
