"""`hindcast config show / check / migrate / schema`."""

from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.output import Report, Table, shorten
from hindcast.app.runs.runs import open_run
from hindcast.app.settings.allowed_values import settings_schema
from hindcast.app.settings.configuration import fields, read_file, resolve
from hindcast.app.settings.migration import migrate_toml
from hindcast.core.settings.changes import flatten_settings
from hindcast.core.text.toml import as_toml
from hindcast.learner.recipes import DEFAULT

WIDTH = 72
"""Maximum number of characters of a value in the table; `--json` has the whole value."""

config_app = typer.Typer(
    name="config", help="Show and check settings and their sources.", no_args_is_help=True
)

Recipe = Annotated[str | None, typer.Option("--recipe", help="Recipe that the other settings override.")]
File = Annotated[
    Path | None, typer.Option("--config", help="Settings file instead of hindcast.toml in this folder.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
]


@config_app.command("show")
def show_settings(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Show the settings of this run instead.")
    ] = None,
    recipe: Recipe = None,
    config: File = None,
    overrides: Overrides = None,
    sources: Annotated[bool, typer.Option("--sources", help="Show the source of each value.")] = False,
) -> Report:
    """Show the settings in force: defaults < recipe < file < environment < --set.

    Example: hindcast config show --sources --set learner.learning_rate=1e-5
    """
    if run is not None:
        resolved = open_run(run).resolved
    else:
        resolved = resolve(recipe=recipe, file=config, overrides=overrides or ())
    content = {"recipe": resolved.recipe, "settings": resolved.settings.model_dump(mode="json")}
    rows = [
        (key, shorten(as_toml(value), WIDTH), resolved.sources[key])
        for key, value in flatten_settings(resolved.settings).items()
    ]
    columns = 3 if sources else 2
    return Report(
        content | ({"sources": resolved.sources} if sources else {}),
        [
            f"recipe {resolved.recipe}",
            Table(("setting", "value", "source")[:columns], [row[:columns] for row in rows]),
        ],
    )


@config_app.command("check")
def check_file(
    file: Annotated[Path, typer.Argument(help="A settings file.")],
) -> Report:
    """Check a settings file without starting a run. Exit code 2 if it is invalid.

    Example: hindcast config check hindcast.toml
    """
    layer, named = read_file(file)
    recipe = named or DEFAULT
    base = resolve(recipe=recipe, environment={}, folder=file.parent, file=file)
    changed = {key: value for key, value in layer.values.items() if base.sources[key] == layer.source}
    return Report(
        {"file": str(file), "valid": True, "recipe": recipe, "settings": len(changed)},
        [f"{file} is valid: {len(changed)} settings over recipe {recipe}"],
    )


@config_app.command("migrate")
def migrate_file(
    file: Annotated[Path, typer.Argument(help="A settings file of an earlier version.")],
    write: Annotated[bool, typer.Option("--write", help="Rewrite the file.")] = False,
) -> Report:
    """Show a settings file with today's names of settings; --write rewrites the file.

    Example: hindcast config migrate hindcast.toml --write
    """
    text, moved = migrate_toml(file)
    if write:
        file.write_text(text, encoding="utf-8")
    said = (
        f"{file}: {len(moved)} settings have new names{'' if write or not moved else '; --write rewrites it'}"
    )
    content = {"file": str(file), "moved": moved, "written": write, "content": text}
    return Report(content, [said, *([] if write else [text])])


@config_app.command("schema")
def show_schema() -> Report:
    """Show every setting with its default and meaning; with --json as JSON Schema.

    Example: hindcast config schema
    """
    rows = [(key, as_toml(field.default), field.description) for key, field in fields().items()]
    return Report(settings_schema(), [Table(("setting", "default", "meaning"), rows)])


app = typer.Typer()
app.add_typer(config_app)
