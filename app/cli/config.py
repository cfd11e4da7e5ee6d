"""`hindcast config show / check / schema`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_table, print_text, shorten
from hindcast.app.runs.runs import open_run
from hindcast.app.settings.configuration import Resolved, fields, read_file, resolve
from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml
from hindcast.learner.recipes import DEFAULT

WIDTH = 72
"""Characters of a value in the table; `--json` has the whole value."""

app = typer.Typer(name="config", help="Show and check settings and their sources.", no_args_is_help=True)

Recipe = Annotated[str | None, typer.Option("--recipe", help="Recipe under the settings.")]
File = Annotated[
    Path | None, typer.Option("--config", help="Settings file instead of hindcast.toml in this folder.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
]


@app.command("show")
def show_settings(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The settings of an existing run instead.")
    ] = None,
    recipe: Recipe = None,
    config: File = None,
    overrides: Overrides = None,
    sources: Annotated[bool, typer.Option("--sources", help="Show the source of each value.")] = False,
    as_json: Json = False,
) -> None:
    """Show the settings in force: defaults < recipe < file < environment < --set.

    Example: hindcast config show --sources --set learner.learning_rate=1e-5
    """
    if run is not None:
        resolved = open_run(run).resolved
    else:
        resolved = resolve(recipe=recipe, file=config, overrides=overrides or ())
    if as_json:
        content = {"recipe": resolved.recipe, "settings": resolved.settings.model_dump(mode="json")}
        print_json({**content, "sources": resolved.sources} if sources else content)
        return
    rows = [(key, shorten(as_toml(value), WIDTH), resolved.sources[key]) for key, value in _flat(resolved)]
    print_text(f"recipe {resolved.recipe}")
    print_table(
        ("setting", "value", "source")[: 3 if sources else 2],
        [row[: 3 if sources else 2] for row in rows],
        empty="",
    )


def _flat(resolved: Resolved) -> list[tuple[str, Any]]:
    content = resolved.settings.model_dump()
    return [(key, content[key.split(".")[0]][key.split(".")[1]]) for key in fields()]


@app.command("check")
def check_file(
    file: Annotated[Path, typer.Argument(help="A settings file.")],
    as_json: Json = False,
) -> None:
    """Check a settings file without starting a run. Exit code 2 if it is invalid.

    Example: hindcast config check hindcast.toml
    """
    layer, named = read_file(file)
    recipe = named or DEFAULT
    base = resolve(recipe=recipe, environment={}, folder=file.parent, file=file)
    changed = {key: value for key, value in layer.values.items() if base.sources[key] == layer.source}
    if as_json:
        print_json({"file": str(file), "valid": True, "recipe": recipe, "settings": len(changed)})
    else:
        print_text(f"{file} is valid: {len(changed)} settings over recipe {recipe}")


@app.command("schema")
def show_schema(as_json: Json = False) -> None:
    """Show every setting with its default and meaning; with --json as JSON Schema.

    Example: hindcast config schema
    """
    if as_json:
        print_json(Settings.model_json_schema())
        return
    rows = [(key, as_toml(field.default), field.description) for key, field in fields().items()]
    print_table(("setting", "default", "meaning"), rows, empty="")
