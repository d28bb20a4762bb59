"""From text files to documents: checked when read, cut at marks or between paragraphs, all at once or block by block. Written by hand."""

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tlm_book.checks import expects, expects_several

__all__ = ["LEAST_BYTES", "MARKS", "Paths", "read_text", "split_text", "stream_documents", "text_files"]

LEAST_BYTES = 4096  # of text; less does not give a useful model
MARKS = re.compile(r"<\|endoftext\|>|\f")
CUTS = (b"<|endoftext|>", b"\f", b"\n\n", b"\n", b" ")  # where a block may end, the best first
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def read_text(path: str | os.PathLike[str], at_least: int = LEAST_BYTES) -> str:
    """The text of a UTF-8 file, with "\\n" in place of "\\r\\n" and without a byte order mark.

    FileNotFoundError if there is no such file; ValueError for a folder, for bytes that are not UTF-8 (with the place of the first),
    and for fewer than `at_least` bytes.
    """
    path = Path(path)
    expects(path.exists(), "path", f"no file at {str(path)!r}", "a text file", FileNotFoundError)
    expects(not path.is_dir(), "path", f"the folder {str(path)!r}", "a text file")
    data = path.read_bytes()
    text = decoded(data, path)
    expects(len(data) >= at_least, "path", f"{len(data)} bytes in {str(path)!r}", f"at least {at_least} bytes of text")
    return text


def decoded(data: bytes, path: Path, first: int = 0) -> str:
    """The text of these bytes, which begin at place `first` of the file. Line ends, byte order mark and errors as in `read_text`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = first + error.start
        bad = f"the byte 0x{data[error.start]:02x} at position {place} of {str(path)!r}, which is not UTF-8"
        raise ValueError(f"path: got {bad}; want a text file in UTF-8") from error
    return (text if first else text.removeprefix("\ufeff")).replace("\r\n", "\n")


def split_text(text: str, size: int = 4000) -> list[str]:
    """Split one text into documents.

    If the text holds marks between documents, `<|endoftext|>` or a form feed, it is cut there. Otherwise paragraphs
    (separated by blank lines) are put together until a document has `size` characters, or a twentieth of the text if that is
    less; a longer paragraph is cut, at line ends or white space if there are any.

    >>> split_text("one\\ftwo")
    ['one', 'two']
    """
    marked = [part.strip() for part in MARKS.split(text) if part.strip()]
    if len(marked) >= 2:
        return marked
    text = "".join(marked) if MARKS.search(text) else text
    size = max(1, min(size, len(text) // 20))
    grouped: list[str] = []
    group = ""
    for paragraph in re.split(r"\n\s*\n", text):
        for piece in cut(paragraph.strip("\n"), size):
            group = f"{group}\n\n{piece}" if group else piece
            if len(group) >= size:
                grouped.append(group)
                group = ""
    return [part for part in [*grouped, group] if part.strip()]


def cut(paragraph: str, size: int) -> list[str]:
    """The paragraph in pieces of at most `size` characters, each cut at the last line end that allows it, else at white space, if there is any.

    >>> cut("to be or not", 6)
    ['to be', 'or not']
    """
    pieces, start = [], 0
    while len(paragraph) - start > size:
        line, *spaces = (paragraph.rfind(sign, start + 1, start + size + 1) for sign in "\n \t")
        end = line if line > 0 else max(spaces) if max(spaces) > 0 else start + size
        pieces.append(paragraph[start:end])
        start = end
        while paragraph[start : start + 1].isspace():
            start += 1
    return [*pieces, paragraph[start:]] if start < len(paragraph) else pieces


# Many files, larger than memory


def text_files(data: Paths) -> list[Path]:
    """The files, with each folder replaced by the files in it (except hidden ones, and those of models and runs) in the order of their names.
    A file that is named twice, such as by its folder and by itself, is read once, where it comes first.

    FileNotFoundError for a path that does not exist, ValueError for a folder without files.
    """
    found: dict[Path, Path] = {}
    given = [data] if isinstance(data, str | os.PathLike) else [*data]
    for path in given:
        expects(os.fspath(path), "path", "''", "a text file")  # which would mean the present folder
    for path in map(Path, given):
        expects(path.exists(), "path", f"no file at {str(path)!r}", "a text file", FileNotFoundError)
        inside = files_below(path) if path.is_dir() else [path]
        expects(inside, "path", f"the folder {str(path)!r} without files", "text files in it")
        for file in inside:
            found.setdefault(file.resolve(), file)
    return [*found.values()]


def files_below(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, in order. Hidden ones, those in hidden folders, and subfolders that hold a model or the work of a run
    are left out, with all that lies in them.
    """
    hidden = lambda file: any(part.startswith(".") for part in file.relative_to(folder).parts)
    made = {file.parent for kind in ("*.safetensors", "*.run/run.json") for file in folder.rglob(kind)} - {folder}
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and not hidden(file) and made.isdisjoint(file.parents)]


def blocks(file: Path, size: int = 2**24) -> Iterator[str]:
    """The text of a file in blocks of about `size` bytes, cut at the best place there is: a mark, a blank line, a line end or a space.
    Errors for bytes that are not UTF-8 as in `read_text`.
    """
    rest, done = b"", 0
    with file.open("rb") as source:
        while piece := source.read(size):
            data = rest + piece
            ends = (data.rfind(mark) + len(mark) for mark in CUTS if mark in data)
            end = next(ends, 0) if len(piece) == size else len(data)
            yield decoded(data[:end], file, done)
            rest, done = data[end:], done + end
    yield decoded(rest, file, done)


def has_marks(file: Path) -> bool:
    """Whether the file marks where a document ends and another begins."""
    if file.stat().st_size == 0:
        return False
    with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return re.search(rb"\S\s*(\f|<\|endoftext\|>)\s*(?!<\|endoftext\|>)[^\s\f]", data) is not None


def stream_documents(files: Sequence[str | os.PathLike[str]], block: int = 2**24) -> Iterator[str]:
    """The documents of the files, one after another. A file is cut at its marks if it has some; else as by `split_text` if it holds more than a tenth of
    the whole text; else it is one document. A file of several blocks is cut block by block. TypeError for a single path.
    """
    expects_several("files", files, "a list of paths", Sequence)
    most = min(block, sum(Path(file).stat().st_size for file in files) / 10)
    for file in map(Path, files):
        whole = has_marks(file) or file.stat().st_size <= most
        for text in blocks(file, block):
            parts = MARKS.split(text) if whole else split_text(text)
            yield from (part.strip() for part in parts if part.strip())
