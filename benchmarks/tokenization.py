"""Training and encoding of byte pair encodings beside tokenizers, tiktoken, a trainer that recounts the corpus for every merge, and the specification.

    python benchmarks/tokenization.py [--rounds 3] [--out benchmarks]

The text is prose found on the machine, 20 MB of it, each paragraph once: the documentation that ships with the installed Python packages
(.rst, .md, .txt and the descriptions in METADATA), at most 6 MB from /usr/share/doc, at most 10 MB of the English manual pages, and for
the rest the docstrings of the installed Python modules; files in an order shuffled by a fixed seed. Nothing is downloaded, and the corpus
is not kept; its digest is printed.

Every measurement is a process of its own that reads the text from a file, one document at a time; only the work is timed, not the start.
Peak memory is that of the whole process, Python included. In each round all engines take their turn, in the opposite order from round to
round; the table gives medians. The merges and the tokens that the engines find must be the same, or nothing is reported.
Writes tokenization.json, tokenization.md and tokenization.svg.
"""

import argparse
import ast
import gzip
import hashlib
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import harness

SIZES = (1, 5, 20)  # MB of text to train on
ENCODED = 5  # MB of text to encode
VOCAB_SIZE = 4096
RESCANS = 12  # merges that the slow trainers are timed for, at each of three points
SLOW = {"rescan": "rescan (extrapolated)", "specification": "specification (extrapolated)"}
State = TypeVar("State")


# The corpus

TRAINING = ("seconds", "their time / ours", "peak MB")
ENCODING = ("cold MB/s", "warm MB/s", "cold: ours / theirs", "warm: ours / theirs", "peak MB")


def roff(text: str) -> str:
    """The prose of a manual page: macro lines and escapes removed."""
    text = re.sub(r"(?m)^\.(?:SH|SS|TP|PP|P|LP|IP|sp|br|RS|RE|HP).*$", "\n", text)
    text = re.sub(r"(?m)^['.].*\n?", "", text)
    return re.sub(r"\\(?:f\[?\w+\]?|f.|[&|,/^]|s[+-]?\d)", "", text.replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\ ", " "))


def docstrings(source: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n\n".join(filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))))


def sources() -> list[tuple[str, float, list[Path]]]:
    """Kinds of text: name, at most so many MB, files."""
    packages, library = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))
    guides = [path for path in packages.rglob("*") if path.suffix in (".rst", ".md", ".txt") or path.name == "METADATA"]
    manuals = [path for n in range(1, 9) for path in Path(f"/usr/share/man/man{n}").glob("*")]
    doc = [path for path in Path("/usr/share/doc").rglob("*") if re.search(r"\.(txt|md|rst)(\.gz)?$|/README[^/]*$|/NEWS[^/]*$", str(path))]
    modules = [path for folder in (library, packages) for path in folder.rglob("*.py") if folder == packages or "site-packages" not in path.parts]
    named = [("package documentation", 20, guides), ("/usr/share/doc", 6, doc), ("manual pages", 10, manuals), ("docstrings", 20, modules)]
    return [(name, most, random.Random(0).sample(files := sorted(set(paths)), len(files))) for name, most, paths in named]


def read(path: Path) -> str:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 5_000_000:
        return ""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        return docstrings(text) if path.suffix == ".py" else roff(text) if "/man/man" in str(path) else text
    except (OSError, EOFError, ValueError, SyntaxError, RecursionError, gzip.zlib.error):
        return ""


def prose(text: str, seen: set[int]) -> str:
    """The paragraphs of a text that are prose (twelve words or more, mostly of letters) and have not been seen before."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = paragraph.strip()
        words = paragraph.split()
        key = hash(" ".join(words))
        letters = sum(map(len, re.findall(r"[^\W\d_]+", paragraph)))
        if len(words) >= 12 and letters > 0.7 * sum(map(len, words)) and key not in seen:
            seen.add(key)
            kept.append(paragraph)
    return "\n\n".join(kept)


def write_corpora(folder: Path) -> dict[str, object]:
    """Files 1.jsonl, 5.jsonl, 20.jsonl: the first MBs of one list of documents, a JSON string a line; the last one is cut."""
    seen: set[int] = set()
    documents, parts = [], Counter()
    for name, most, paths in sources():
        for path in paths:
            if parts[name] >= most * 1_000_000 or parts.total() >= SIZES[-1] * 1_000_000:
                break
            if text := prose(read(path), seen):
                documents.append(text)
                parts[name] += len(text.encode())
    if parts.total() < SIZES[-1] * 1_000_000:
        raise SystemExit(f"only {parts.total() / 1e6:.1f} MB of prose found on this machine, {SIZES[-1]} MB wanted")
    random.Random(1).shuffle(documents)
    for megabytes in SIZES:
        left = megabytes * 1_000_000
        with open(folder / f"{megabytes}.jsonl", "w", encoding="utf-8") as file:
            for text in documents:
                file.write(json.dumps(text.encode()[:left].decode(errors="ignore"), ensure_ascii=False) + "\n")
                left -= len(text.encode())
                if left <= 0:
                    break
    digest = hashlib.sha256((folder / f"{SIZES[-1]}.jsonl").read_bytes()).hexdigest()[:12]
    return {"bytes": dict(parts), "documents": len(documents), "sha256": digest}


clock = time.process_time if "BENCHMARK_CPU" in os.environ else time.perf_counter


def stream(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


# What is measured: each of these runs in a process of its own

def digest(numbers: list) -> str:
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:12]


def train_ours(path: str) -> tuple[float, str]:
    from tlm_book.tokenization import GPT2_PATTERN, Tokenizer

    start = clock()
    tokenizer = Tokenizer.train(stream(path), VOCAB_SIZE, specials=[], pattern=GPT2_PATTERN, progress=False)
    return clock() - start, digest(tokenizer.merges)


def train_and_save(path: str) -> tuple[str]:
    from tlm_book.tokenization import GPT2_PATTERN, Tokenizer

    Tokenizer.train(stream(path), VOCAB_SIZE, specials=[], pattern=GPT2_PATTERN, progress=False).save(Path(path).with_name("tokenizer.json"))
    return ("",)


def train_tokenizers(path: str) -> tuple[float, str]:
    import tokenizers

    from tlm_book.tokenization import byte_characters

    letters = byte_characters()
    start = clock()
    engine = tokenizers.Tokenizer(tokenizers.models.BPE())
    engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCAB_SIZE, min_frequency=2, special_tokens=letters, show_progress=False)
    engine.train_from_iterator(stream(path), trainer)
    seconds = clock() - start
    token, merges = {letter: b for b, letter in enumerate(letters)}, []
    for a, b in json.loads(engine.to_str())["model"]["merges"]:
        token[a + b] = 256 + len(merges)
        merges.append((token[a], token[b]))
    return seconds, digest(merges)


def extrapolated(path: str, prepare: Callable[[list[list[int]]], State], merge: Callable[[State, int], tuple[tuple[int, int], State]]) -> tuple[float, str]:
    """Seconds for all merges, by Simpson's rule from a few at the beginning, in the middle and before the end. `merge` does one merge, with the
    state that `prepare` makes of the tokens of all pre-tokens; it returns the pair and the new state."""
    from tlm_book.tokenization import GPT2_PATTERN, Tokenizer, pre_tokens

    tokenizer, total = Tokenizer.load(Path(path).with_name("tokenizer.json")), VOCAB_SIZE - 256
    pieces = [piece for text in stream(path) for piece in pre_tokens(text, GPT2_PATTERN)]
    rates = []
    for done in (0, total // 2, total - RESCANS):
        known = Tokenizer(tokenizer.merges[:done], [], GPT2_PATTERN)
        state = prepare([known.encode(piece) for piece in pieces])
        start = clock()
        for new in range(256 + done, 256 + done + RESCANS):
            best, state = merge(state, new)
            assert best == tokenizer.merges[new - 256]
        rates.append((clock() - start) / RESCANS)
    return total * (rates[0] + 4 * rates[1] + rates[2]) / 6, ""


def train_rescan(path: str) -> tuple[float, str]:
    """Recount and replace over the whole corpus for each merge. The tokens stand in one flat list, −1 between pre-tokens."""

    def merge(flat: list[int], new: int) -> tuple[tuple[int, int], list[int]]:
        counts = Counter(pairwise(flat))
        best = min((pair for pair in counts if -1 not in pair), key=lambda pair: (-counts[pair], pair))
        merged, skip = [], False
        for a, b in pairwise(flat):  # the last token is −1: it joins nothing
            if skip:
                skip = False
            elif (a, b) == best:
                merged.append(new)
                skip = True
            else:
                merged.append(a)
        return best, [*merged, -1]

    return extrapolated(path, lambda pieces: [token for piece in pieces for token in (*piece, -1)], merge)


def train_specification(path: str) -> tuple[float, str]:
    """The steps of `spec.tokenization.learn`, as they stand there."""
    from tlm_book.spec.tokenization import count_pairs, most_frequent, replace

    def merge(pieces: list[list[int]], new: int) -> tuple[tuple[int, int], list[list[int]]]:
        best = most_frequent(count_pairs(pieces))
        return best, [replace(piece, best, new) for piece in pieces]

    return extrapolated(path, lambda pieces: pieces, merge)


def encode(path: str, name: str) -> tuple[float, float, str]:
    """Seconds for the first time and for the second, texts to lists of numbers. What the first has found is gone before the second begins."""
    from tlm_book.tokenization import Tokenizer, to_tiktoken, to_tokenizers

    tokenizer, texts = Tokenizer.load(Path(path).with_name("tokenizer.json")), list(stream(path))
    if name == "ours":
        run, read_ids = tokenizer.encode_batch, list
    elif name == "tiktoken":
        engine = to_tiktoken(tokenizer)
        run, read_ids = lambda some: [engine.encode_ordinary(text) for text in some], list  # its batches run in a thread of their own, which is slower
    else:
        engine = to_tokenizers(tokenizer)
        run = engine.encode_batch if name == "tokenizers" else engine.encode_batch_fast
        read_ids = lambda found: [encoding.ids for encoding in found]
    times, ids = [], []
    for _ in range(2):
        ids.clear()
        start = clock()
        found = run(texts)
        times.append(clock() - start)
        ids += read_ids(found)
        del found
    return *times, digest(ids)


JOBS = {
    "train": {"ours": train_ours, "tokenizers": train_tokenizers, "tokenizers, 2 threads": train_tokenizers, "save": train_and_save}
    | {"rescan": train_rescan, "specification": train_specification},
    "encode": {name: lambda path, name=name: encode(path, name) for name in ("ours", "tokenizers", "tokenizers, fast", "tiktoken")},
}


def child(job: str, engine: str, path: str) -> None:
    if job == "corpus":
        return print(json.dumps(write_corpora(Path(path))))
    *seconds, found = JOBS[job][engine](path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    print(json.dumps({"seconds": seconds, "found": found, "peak": peak}))


# The parent. It stays small and leaves all work to children: a process begins with the peak memory of the one that started it

def measure(job: str, engine: str, path: Path) -> dict:
    threads = "2" if "2 threads" in engine else "1"
    env = os.environ | {"RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true" if threads == "2" else "false", "OMP_NUM_THREADS": "1", "TLM_BOOK_TYPECHECK": "0"}
    command = [sys.executable, __file__, "--child", job, engine, str(path)]
    return json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def side_by_side(job: str, engines: list[str], path: Path, rounds: int) -> dict[str, dict]:
    runs = harness.in_turn({engine: lambda engine=engine: measure(job, engine, path) for engine in engines}, rounds)
    found = {run["found"] for some in runs.values() for run in some}
    if len(found) != 1:
        raise SystemExit(f"{job}: the engines find different results, so their times cannot be compared: {found}")
    return {
        engine: {"seconds": [statistics.median(times) for times in zip(*(run["seconds"] for run in some), strict=True)], "peak": statistics.median(run["peak"] for run in some)}
        for engine, some in runs.items()
    }


def training_rows(folder: Path, rounds: int) -> list[dict]:
    rows = []
    for megabytes in SIZES:
        path = folder / f"{megabytes}.jsonl"
        threads = [] if "BENCHMARK_CPU" in os.environ else ["tokenizers, 2 threads"]  # their processor time would be that of both together
        found = side_by_side("train", ["ours", "tokenizers", *threads], path, rounds)
        if megabytes == SIZES[0]:
            measure("train", "save", path)
            found |= {name: {"seconds": measure("train", job, path)["seconds"], "peak": None} for job, name in SLOW.items()}
        ours = found["ours"]["seconds"][0]
        for engine, result in found.items():
            seconds, peak = result["seconds"][0], result["peak"]
            rows.append({"MB": megabytes, "engine": engine, "seconds": round(seconds, 2), "their time / ours": round(seconds / ours, 2), "peak MB": peak and round(peak)})
            print(rows[-1], flush=True)
    return rows


def encoding_rows(folder: Path, rounds: int) -> list[dict]:
    path, rows = folder / f"{ENCODED}.jsonl", []
    measure("train", "save", path)
    found = side_by_side("encode", list(JOBS["encode"]), path, rounds)
    size, ours = ENCODED, found["ours"]["seconds"]
    for engine, result in found.items():
        cold, warm = result["seconds"]
        row = {"engine": engine, "cold MB/s": round(size / cold, 1), "warm MB/s": round(size / warm, 1), "cold: ours / theirs": round(cold / ours[0], 2)}
        rows.append(row | {"warm: ours / theirs": round(warm / ours[1], 2), "peak MB": round(result["peak"])})
        print(rows[-1], flush=True)
    return rows


def rounded(row: dict) -> dict:
    """Ratios with two digits after the point; what is extrapolated, to two digits in all: more are not known."""
    if row["engine"] not in SLOW.values():
        return row | {"their time / ours": f"{row['their time / ours']:.2f}"}
    return row | {name: int(float(f"{row[name]:.2g}")) for name in ("seconds", "their time / ours")}


def page(found: harness.Entries) -> str:
    """The machines side by side, and below them what was measured of each, and on which text."""
    training = harness.abreast({name: list(map(rounded, report["training"])) for name, report in found.items()}, ("MB", "engine"), TRAINING, TRAINING[:2])
    training.sort(key=lambda row: row["MB"])
    encoding = harness.abreast({name: report["encoding"] for name, report in found.items()}, ("engine",), ENCODING, ENCODING[:2])
    return (
        f"Training a vocabulary of {VOCAB_SIZE:,} with GPT-2's pattern (all engines on one thread unless the row says otherwise; all find the same merges; what is"
        f" extrapolated is timed for {3 * RESCANS} of {VOCAB_SIZE - 256:,} merges)\n\n{harness.table(training)}\n\n{harness.measured(found)}\n\n"
        f"Encoding {ENCODED} MB on one thread, a fresh engine (cold) and the same texts again (warm); all find the same tokens. *tokenizers, fast* is its"
        f" `encode_batch_fast`\n\n{harness.table(encoding)}\n\n{harness.measured(found)}\n\n{harness.sections(found, about)}"
    )


def about(report: harness.Report) -> str:
    """On which text, how often, and the columns that the tables above leave out."""
    corpus, rows = report["corpus"], report["encoding"]
    slower = "" if report.get("tiktoken") == "encode_ordinary" else " *tiktoken* is its `encode_ordinary_batch`, which is slower than `encode_ordinary`."
    parts = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in corpus["bytes"].items())
    return (
        f"Memory.\n\n{harness.table([{'MB': row['MB'], 'engine': row['engine'], 'peak MB': row['peak MB']} for row in report['training'] if row['peak MB']])}\n\n"
        f"Encoding.{slower}\n\n{harness.table([{'engine': row['engine'], **{name: f'{row[name]:.2f}' for name in ENCODING[2:4]}, 'peak MB': row['peak MB']} for row in rows])}\n\n"
        f"Text: {parts}; {corpus['documents']:,} documents, each paragraph once, sha256 {corpus['sha256']}….\n\nMedians of {report['rounds']} alternating runs, each a fresh process{report['clock']}; {harness.about(report['machine'])}.\n"
    )


def draw(report: harness.Report, axes: object) -> None:
    lengths = {f"training, {row['MB']} MB: {row['engine']}": row["their time / ours"] for row in report["training"] if row["engine"] not in ("ours", *SLOW.values())}
    lengths |= {f"encoding, {state}: {row['engine']}": row[f"{state}: ours / theirs"] for row in report["encoding"][1:] for state in ("cold", "warm")}
    harness.bars(axes, lengths, mark=1, unit=" ×")
    axes.set(xlabel="their time / ours")


def main() -> None:
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of time: for a machine that has other work")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    if options.write:
        return harness.rewrite(options.out, "tokenization", page, draw)
    if options.cpu:
        os.environ["BENCHMARK_CPU"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = measure("corpus", "", folder)
        print(corpus, flush=True)
        training = training_rows(folder, options.rounds)
        encoding = encoding_rows(folder, options.rounds)
    versions = {library: version(library) for library in ("tokenizers", "tiktoken", "regex")}
    machine = harness.machine(**versions)
    report = {"machine": machine, "rounds": options.rounds, "clock": ", processor time" * options.cpu, "vocab_size": VOCAB_SIZE, "corpus": corpus, "training": training, "encoding": encoding, "tiktoken": "encode_ordinary"}
    harness.write(options.out, "tokenization", report, page, draw)


if __name__ == "__main__":
    main()
