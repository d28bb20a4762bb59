"""The two kinds of model on the book's essays: the one that the overview defines, as `train --book` makes it, and the recipe's in the same sizes.

    OMP_NUM_THREADS=1 python benchmarks/essays.py [--rounds 3]

A round is a seed. Both read the same text and are judged on the same held-out documents (others for each seed), beside n-gram tables of that text.
Writes essays.json and essays.md; a round takes some six minutes of one core.
"""

import statistics
import tempfile
from pathlib import Path

import harness

from tlm_book.tokenization import documents
from tlm_book.training.config import model_for, plan
from tlm_book.training.run import RunReport, train_and_save, train_book


def recipe_run(out: Path, seed: int) -> RunReport:
    texts = documents()
    size, config = plan(sum(len(text.encode()) for text in texts), seed=seed)
    return train_and_save(texts, out, size, config, device="cpu", progress=False, model_of=model_for)


def overview_run(out: Path, seed: int) -> RunReport:
    return train_book(out, progress=False, seed=seed)


def row(who: str, weights: int | None, losses: list[float], trigrams: list[float]) -> dict[str, object]:
    gains = [trigram - loss for loss, trigram in zip(losses, trigrams)]
    found: dict[str, object] = {"who": who, "weights": weights and f"{weights:,}", "nats per token": f"{statistics.mean(losses):.2f}"}
    found["below the trigram table"] = f"{statistics.mean(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})".replace("-", "−") if any(gains) else None
    print(found, flush=True)
    return found


def page(entries: harness.Entries) -> str:
    said = lambda report: (
        f"{harness.table(report['rows'])}\n\nThe least loss on the held-out documents; mean, lowest and highest of {report['rounds']} seeds, each with other documents held out; "
        f"{harness.about(report['machine'])}."
    )
    return "# The two kinds of model on the essays\n\nWritten by essays.py.\n\n" + harness.sections(entries, said)


def main() -> None:
    options = harness.parser(__doc__, rounds=3).parse_args()
    if options.write:
        return harness.rewrite(options.out, "essays", page)
    runs: dict[str, list[RunReport]] = {"the overview's model": [], "the recipe's": []}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.rounds):
            for (who, reports), run in zip(runs.items(), (overview_run, recipe_run)):
                reports.append(run(Path(scratch) / f"{len(reports)}-{who[4:7]}", seed))
                print(who, seed, reports[-1].loss, flush=True)
    trigrams, bigrams = ([getattr(one, table) for one in runs["the recipe's"]] for table in ("trigram", "bigram"))
    rows = [row(who, reports[0].parameters, [one.loss for one in reports], trigrams) for who, reports in runs.items()]
    rows += [row("trigram table", None, trigrams, trigrams), row("bigram table", None, bigrams, trigrams)]
    report = {"machine": harness.torch_machine(), "rounds": options.rounds, "rows": rows}
    harness.write(options.out, "essays", report, page)


if __name__ == "__main__":
    main()
