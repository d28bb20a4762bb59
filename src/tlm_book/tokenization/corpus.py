"""The book's own corpus: 48 short English texts, which come with the package."""

from importlib import resources

__all__ = ["documents"]


def documents() -> list[str]:
    """The book's corpus: short English texts, one str each, sorted by file name."""
    folder = resources.files("tlm_book") / "data" / "corpus"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".txt")), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files]
