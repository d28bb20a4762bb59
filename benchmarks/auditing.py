"""The audit of models from a large library, with random weights: two layers of width 32, and the sizes of GPT-2 small with 128 rows; beside it the
sweep of replaced rows that would decide every cut: n − 1 sequences of n rows, two at a time.

    python benchmarks/auditing.py [--rounds 3] [--rows 128]

Writes auditing.json and auditing.md. The goals, 2 s and 20 s, are for two cores; status 1 when a verdict is wrong.
"""

import functools
import warnings

import harness
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.auditing import audit

TWO_LAYERS = {"vocab_size": 1000, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
GOALS = {"two blocks of width 32": 2, "GPT-2 small": 20}  # seconds by the clock
COLUMNS = ("audit, s", "sweep, s", "sweep / audit")


@torch.no_grad()
def sweep(model: GPT2LMHeadModel, ids: torch.Tensor) -> None:
    for _ in range(0, ids.shape[1] - 1, 2):
        model(ids)


def confirm(model: GPT2LMHeadModel, ids: torch.Tensor) -> None:
    report = audit(model, ids)
    if not report.ok:
        raise SystemExit(f"a wrong verdict: these models see no later row\n{report}")


def row(name: str, config: GPT2Config, n: int, rounds: int) -> dict[str, object]:
    """Both in turn; the first round, which makes torch ready, is not kept."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    ids = torch.randint(config.vocab_size, (2, n))
    jobs = {"audit": functools.partial(confirm, model, ids), "sweep": functools.partial(sweep, model, ids)}
    found = harness.side_by_side(jobs, rounds, warmup=1)
    seconds = {f"{what}, s": harness.Spread.of(times.wall).text() for what, times in found.items()}
    made = {"model": name, "n": n} | seconds | {"sweep / audit": harness.ratio(found["sweep"], found["audit"]).text(), "goal, s": GOALS[name]}
    print(made, flush=True)
    return made


def page(entries: harness.Entries) -> str:
    """The machines side by side."""
    rows = harness.abreast({name: report["rows"] for name, report in entries.items()}, ("model", "n"), COLUMNS)
    head = "The audit beside a sweep of n − 1 sequences, models of Hugging Face's GPT2LMHeadModel; in brackets the quartiles."
    return f"{head}\n\n{harness.table(rows)}\n\n{harness.measured(entries)}\n\n" + harness.sections(entries, said)


def said(report: harness.Report) -> str:
    return f"{harness.table(report['rows'])}\n\nMedians of {report['rounds']} rounds. {harness.about(report['machine'])}."


def main() -> None:
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("--rows", type=int, default=128, help="of GPT-2 small (128)")
    options = parser.parse_args()
    if options.write:
        return harness.rewrite(options.out, "auditing", page)
    warnings.simplefilter("ignore")
    small = GPT2Config(**TWO_LAYERS, bos_token_id=None, eos_token_id=None)
    sizes = zip(GOALS, (small, GPT2Config()), (16, options.rows), strict=True)
    rows = [row(name, config, n, options.rounds) for name, config, n in sizes]
    facts = harness.torch_machine(transformers=transformers.__version__)
    harness.write(options.out, "auditing", {"machine": facts, "rounds": options.rounds, "rows": rows}, page)


if __name__ == "__main__":
    main()
