"""Commands about networks before training: `diagnose` and `audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import DirectoryOption, JsonOption, SchemeOption, folder, takes_columns


@takes_columns
def diagnose(
    model: Annotated[
        str | None, typer.Argument(help="Your own model as FILE.py:NAME, a module or a function that builds one.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Hidden layers.")] = 100,
    width: Annotated[int, typer.Option(min=1, help="Units per hidden layer.")] = 64,
    scheme: SchemeOption = "all",
    activation: Annotated[str, typer.Option(help="relu, leaky_relu, prelu, elu or selu.")] = "relu",
    data: Annotated[
        str,
        typer.Option(
            "--data", "--dataset", help="A data set by name, a file, or the shape of one input for noise, as 3x32x32."
        ),
    ] = "digits",
    columns: Any = None,  # an option for each of its fields
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the weights.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=folder, metavar="PATH", help="Directory for the picture and the numbers."),
    ] = None,
    data_dir: DirectoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happens to signal and gradient before training, for the initializations or for your own model.

    [dim]stiefel-init diagnose --depth 100 --width 64 --scheme all --data digits --out DIR[/dim]

    [dim]stiefel-init diagnose path/to/file.py:build_model --data mnist[/dim]
    """
    from .. import diagnosis

    batch = diagnosis.batch(data, columns, data_dir)
    if model is not None:
        diagnoses = {model: diagnosis.of_own_model(model, batch)}
    else:
        diagnoses = diagnosis.of_schemes(scheme, depth, width, activation, batch, seed)
    written = [] if out is None else diagnosis.write(diagnoses, out)
    if as_json:
        print(json.dumps(diagnosis.numbers(diagnoses), ensure_ascii=False, indent=1))
        return
    if len(diagnoses) == 1:
        print(*diagnoses.values())
    else:
        title = f"{depth} {activation} layers, {width} wide, on {batch.name}, before training"
        diagnosis.comparison(diagnoses, title).show()
    if written:
        print(f"\nWrote {' and '.join(map(str, written))}.")


def audit(
    model: Annotated[str, typer.Argument(help="Your model as FILE.py:NAME, a module or a function that builds one.")],
    as_json: JsonOption = False,
) -> None:
    """Show which law each parameter of your model holds, and which look as if nobody had initialized them.

    [dim]stiefel-init audit path/to/file.py:build_model[/dim]
    """
    from ...torch import audit as audit_model
    from ..diagnosis import load_model

    found = audit_model(load_model(model))
    print(json.dumps([row._asdict() for row in found], ensure_ascii=False, indent=1) if as_json else found)
