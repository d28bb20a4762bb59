"""What lies around the training step: batches from a memory map, and saving and loading of 25 million weights.

    python benchmarks/data.py [--rounds 15] [--tokens 100_000_000]

Batches are drawn from a mapped token file, at the sizes S (16 windows of 128 tokens) and L (4 of 256). Saving and loading stand beside
plain safetensors: `save_file`, and two ways of loading, `load_file` with every number read once (it maps the file and reads nothing by itself),
and `load_model` into a new model. Ours also checks that every number is finite. Prints a table; writes data.json and data.md.
"""

import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
from harness import (
    Report,
    Spread,
    about,
    in_turn,
    parser,
    ratio,
    rewrite,
    sections,
    side_by_side,
    table,
    timed,
    torch_machine,
    write,
)
from safetensors.torch import load_file, load_model, save_file

from tlm_book.tokenization import Tokenizer
from tlm_book.training import (
    TrainConfig,
    load,
    optimizer_for,
    sample_batch,
    save,
    state_of,
    stored_weights,
    write_checkpoint,
    write_tokens,
)
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

SIZES = {"S": (16, 128), "L": (4, 256)}
CONFIG = Config(257, d_model=512, d_ff=2048, n_layers=8, n_heads=8, max_len=256)  # 25 million weights


class Numbers:
    """Stands in for a tokenizer: a "text" says how many tokens long it is."""

    start = 0

    def __len__(self) -> int:
        return 8192

    def encode(self, text: str) -> np.ndarray:
        return np.random.default_rng(len(text)).integers(1, 8192, int(text))


def batches(folder: Path, n_tokens: int, rounds: int, calls: int = 500) -> list[dict]:
    """Microseconds for one batch, by the clock, mean of many calls in each round."""
    tokens = write_tokens(folder / "text.tokens", (str(min(10**5, n_tokens)) for _ in range(max(1, n_tokens // 10**5))), Numbers()).tokens
    rows = []
    for name, (batch_size, n) in SIZES.items():
        seen = iter(range(10**9))
        times = in_turn({"batch": lambda: timed(lambda: [sample_batch(tokens, n, batch_size, 0, next(seen)) for _ in range(calls)])}, rounds, warmup=2)["batch"]
        wall, processor = (Spread.of([1e6 * time[k] / calls for time in times]) for k in (0, 1))
        rows.append({"batch": f"{name}: {batch_size} × {n}", "µs by the clock": wall.text(1), "µs of processor time": processor.text(1)})
    return rows


def files(folder: Path, rounds: int) -> list[dict]:
    """Saving and loading beside plain safetensors."""
    model, words = TransformerLM(CONFIG), Tokenizer([])
    weights, plain, ours = stored_weights(model), folder / "plain.safetensors", folder / "model"

    def save_ours() -> None:
        shutil.rmtree(ours, ignore_errors=True)
        save(model, ours, words)

    def save_plain() -> None:
        plain.unlink(missing_ok=True)
        save_file(weights, plain)

    saving = side_by_side({"plain: save_file": save_plain, "ours: save": save_ours}, rounds)
    loading = side_by_side(
        {
            "plain: load_file, each number read": lambda: [w.sum() for w in load_file(plain).values()],
            "plain: a new model, load_model": lambda: load_model(TransformerLM(CONFIG), plain),
            "ours: load": lambda: load(ours),
        },
        rounds,
    )
    optimizer = optimizer_for(model, TrainConfig())
    state = state_of(model, optimizer)

    def checkpoint() -> None:
        shutil.rmtree(folder / "run", ignore_errors=True)
        write_checkpoint(folder / "run", 1, state, {"run": {"training": {}}, "held_out": None})

    noting = side_by_side({"plain: save_file of weights and means": lambda: save_file(state, plain), "ours: a checkpoint": checkpoint}, rounds)
    rows = []
    for found in (saving, loading, noting):
        *_, last = found.values()
        for name, timing in found.items():
            against = {clock: "" if timing is last else ratio(last, timing, clock).text() for clock in ("wall", "processor")}
            rows.append({"": name, "ms": timing.ms(), "ours takes, × this": against["wall"], "in processor time": against["processor"]})
    return rows


def text_of(report: Report) -> str:
    head = f"Medians of {report['rounds']} rounds, with quartiles. {about(report['machine'])}."
    text = f"# Data and files\n\n{head}\n\nBatches from a mapped file of {report['tokens']:,} tokens:\n\n{table(report['batches'])}\n\n"
    return text + f"A model of {report['weights']:,} weights in float32:\n\n{table(report['files'])}\n"


PAGE = functools.partial(sections, text_of=text_of)


def main() -> None:
    options = parser(__doc__, rounds=15)
    options.add_argument("--tokens", type=int, default=100_000_000, help="in the mapped file (100,000,000)")
    options = options.parse_args()
    if options.write:
        return rewrite(options.out, "data", PAGE)
    facts = torch_machine()
    with tempfile.TemporaryDirectory() as scratch:
        drawn, kept = batches(Path(scratch), options.tokens, options.rounds), files(Path(scratch), options.rounds)
    report = {"machine": facts, "rounds": options.rounds, "tokens": options.tokens, "weights": count_parameters(CONFIG), "batches": drawn, "files": kept}
    write(options.out, "data", report, PAGE)


if __name__ == "__main__":
    main()
