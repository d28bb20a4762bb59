"""Serve the built site and build it again when a source changes; open pages reload by themselves (`make serve`)."""

import sys
from pathlib import Path

from chapters import ROOT
from livereload import Server, shell

SOURCES = ("_config.yml", "_toc.yml", "book/*.ipynb", "book/*.md", "book/assets/**", "site/**")
BUILD = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-W", "-n", "--keep-going"]


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = Server()
    for source in SOURCES:
        server.watch(str(ROOT / source), shell(BUILD, cwd=str(ROOT)), delay=1)
    server.serve(root=str(ROOT / "_build" / "html"), host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
