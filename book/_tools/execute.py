"""Run chapters from top to bottom and keep their outputs: `python book/_tools/execute.py [CHAPTER …]`.

Two runs give the same bytes: no times, no widget state, no editor metadata. A chapter that fails is left as it was.
"""

import os
import sys

import nbformat
from chapters import BOOK, install_cell, notebook_path, read, table_of_contents
from nbclient import NotebookClient

KEPT = {"tags", "mystnb"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Keep what a reader sees; drop what an editor or a run leaves behind."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT}
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
            output.pop("transient", None)
            if "metadata" in output:
                output.metadata = {}


def execute(name: str) -> None:
    notebook = read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source = install_cell()
    client = NotebookClient(
        notebook, timeout=900, kernel_name="python3", record_timing=False, store_widget_state=False, coalesce_streams=True,
        resources={"metadata": {"path": str(BOOK)}},
    )
    client.execute()
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    tidy(notebook)
    nbformat.validate(notebook)
    path = notebook_path(name)
    scratch = path.with_suffix(".ipynb.part")
    nbformat.write(notebook, scratch)
    os.replace(scratch, path)
    print("executed", path.name, flush=True)


def main() -> None:
    for name in sys.argv[1:] or table_of_contents():
        execute(name)


if __name__ == "__main__":
    main()
