"""How well the model that ships with the book knows its small world, beside tables of n-grams: what each writes, read by the simulator, and what each answers
to questions about stories that neither has seen.

    python benchmarks/world.py [--rounds 200]

A round is a story written at each temperature, and a story to be asked of. The tables count eight million tokens of stories.
Writes world.json and world.md; takes some five minutes on one core.
"""

import itertools
from array import array
from collections.abc import Sequence

import harness
import numpy as np

from tlm_book import small_world
from tlm_book.small_world.judging import (
    judged,
    marked,
    ngram_answers,
    ngram_stories,
    rightly_answered,
    written_stories,
)
from tlm_book.tokenization import Tokenizer
from tlm_book.training.ngrams import KneserNey
from tlm_book.transformer_lm import TransformerLM

LEVELS = (0, 1, 2, 3)
TEMPERATURES = (1.0, 0.5, 0.2)
ORDERS = (3, 4, 5)
COUNTED = 8_000_000
LENGTHS = (60, 100, 150, 200, 352)  # of a story with its questions, in tokens
NEW = 2_000_000  # seeds from here on are of stories that nobody has learned from


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def row(who: str, texts: Sequence[str], answers: Sequence[bool]) -> dict[str, object]:
    writing, told = judged(texts), [small_world.proofread(text.partition("\n")[0]) for text in texts]
    sound = np.array([story.consistent and story.sentences > 2 for story in told])
    answered = np.array([small_world.proofread(text).consistent for text in texts])
    found: dict[str, object] = {
        "who": who,
        "sentences of the language": percent(writing.grammatical),
        "stories without a fault": percent(float(sound.mean())),
        "nor in their answers": percent(float((sound & answered).mean())),
        "own questions right": percent(writing.right) if writing.asked else "none asked",
        "questions of new stories right": percent(float(np.mean(answers))),
    }
    print(found, flush=True)
    return found


def counted_tokens(tokenizer: Tokenizer, least: int) -> np.ndarray:
    """Whole stories of the same levels, one after the other, until there are so many tokens."""
    tokens = array("q")
    for seed in itertools.count(NEW // 2):
        for text in small_world.stories(1000, seed, LEVELS):
            tokens.extend(marked(text, tokenizer)[0])
        if len(tokens) >= least:
            break
    return np.array(tokens)


def by_level(model: TransformerLM, tokenizer: Tokenizer, count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for level in LEVELS:
        found = rightly_answered(model, tokenizer, small_world.stories(count, NEW + 1 + level, (level,)))
        rows.append({"level": level, "questions": len(found), "right": percent(float(np.mean(found)))})
    return rows


def by_length(tokenizer: Tokenizer, texts: Sequence[str], found: Sequence[Sequence[bool]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    lengths = [len(marked(text, tokenizer)[0]) for text in texts]
    for low, high in zip((0, *LENGTHS), LENGTHS):
        hits = [hit for n, answers in zip(lengths, found) for hit in answers if low < n <= high]
        if hits:
            rows.append({"tokens": f"{low + 1} to {high}", "questions": len(hits), "right": percent(float(np.mean(hits)))})
    return rows


def page(entries: harness.Entries) -> str:
    said = lambda report: (
        f"{harness.table(report['rows'])}\n\nThe model's answers by the level of the story:\n\n{harness.table(report['levels'])}\n\nBy the length of story and questions:\n\n{harness.table(report['lengths'])}\n\n"
        f"{report['rounds']} stories written by the model at each temperature and {report['rounds'] // 2} by each table, where one or two sentences are no story; the model answered {report['asked']} questions, "
        f"the tables those of the first {report['rounds'] // 2} stories; levels {LEVELS[0]} to {LEVELS[-1]}; "
        f"the tables have counted {report['counted'] / 1e6:.1f} million tokens; {harness.about(report['machine'])}."
    )
    return "# What the model of the small world knows\n\nWritten by world.py.\n\n" + harness.sections(entries, said)


def main() -> None:
    options = harness.parser(__doc__, rounds=200).parse_args()
    if options.write:
        return harness.rewrite(options.out, "world", page)
    model, tokenizer = small_world.model()
    texts = small_world.stories(options.rounds, NEW, LEVELS)
    found = [rightly_answered(model, tokenizer, [text]) for text in texts]
    answers = [hit for hits in found for hit in hits]
    rows = [row(f"the model, temperature {t:g}", written_stories(model, tokenizer, options.rounds, t), answers) for t in TEMPERATURES]
    counted = counted_tokens(tokenizer, COUNTED)
    for order in ORDERS:
        table, before = KneserNey(counted, order, len(tokenizer)), counted[1 - order :]
        few = options.rounds // 2
        written = ngram_stories(table, tokenizer, few, before, model.config.max_len - 1)
        rows.append(row(f"n-grams of order {order}", written, ngram_answers(table, tokenizer, texts[:few], before)))
    report = {
        "machine": harness.torch_machine(), "rounds": options.rounds, "asked": len(answers), "counted": len(counted),
        "rows": rows, "levels": by_level(model, tokenizer, options.rounds // 2), "lengths": by_length(tokenizer, texts, found),
    }  # fmt: skip
    harness.write(options.out, "world", report, page)


if __name__ == "__main__":
    main()
