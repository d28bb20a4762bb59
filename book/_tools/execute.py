"""Run chapters from top to bottom and keep their outputs: `python book/_tools/execute.py [--fresh] [CHAPTER …]`.

Two runs give the same bytes, on another machine too: no times, no widget state, no editor metadata, and where the new digits agree with the committed
ones (agreement.py) the committed ones stay. So do the outputs of an unchanged cell that measures (tag nbval-ignore-output), unless --fresh is given.
A measurement is made with all its seeds (tlm_book.measuring).
A chapter that fails is left as it was.
"""

import copy
import os
import subprocess
import sys

import nbformat
from agreement import kept
from chapters import (
    BOOK,
    ROOT,
    chosen,
    install_cell,
    notebook_path,
    read,
    table_of_contents,
)
from forked_kernels import use_forks
from nbclient import NotebookClient

KEPT = {"tags", "mystnb"}
MEASURES = "nbval-ignore-output"
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


def committed_sources(name: str) -> dict[str, str]:
    """{id of a cell: its source} as last committed; empty where git cannot tell."""
    path = notebook_path(name).relative_to(ROOT).as_posix()
    shown = subprocess.run(["git", "show", f"HEAD:{path}"], capture_output=True, text=True, encoding="utf-8", cwd=ROOT)
    return {cell.id: cell.source for cell in nbformat.reads(shown.stdout, as_version=4).cells} if shown.returncode == 0 else {}


def execute(name: str, fresh: bool = False) -> None:
    notebook = read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source = install_cell()
    before = {cell.id: copy.deepcopy(cell.outputs) for cell in code}
    sources = committed_sources(name)
    client = NotebookClient(
        notebook, timeout=900, kernel_name="python3", record_timing=False, store_widget_state=False, coalesce_streams=True, shutdown_kernel="immediate",
        resources={"metadata": {"path": str(BOOK)}},
    )
    client.execute()
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    tidy(notebook)
    for cell in code:
        unchanged = sources.get(cell.id) == cell.source
        if not fresh:
            cell.outputs = kept(before[cell.id], cell.outputs, measured=unchanged and MEASURES in cell.metadata.get("tags", []))
    nbformat.validate(notebook)
    path = notebook_path(name)
    scratch = path.with_suffix(".ipynb.part")
    nbformat.write(notebook, scratch)
    os.replace(scratch, path)
    print("executed", path.name, flush=True)


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--fresh"]
    os.environ["TLM_BOOK_ALL_SEEDS"] = "1"
    use_forks()
    for name in chosen(names, table_of_contents()):
        execute(name, fresh="--fresh" in sys.argv[1:])


if __name__ == "__main__":
    main()
