"""What it costs, while nobody looks, that a model can be looked into (`run_with_cache`): a training step, a forward pass and writing 56 tokens,
by the model as it is and by the same model whose attention cannot be watched, in one run.

    python benchmarks/inside.py [--rounds 40]

The runs alternate; the ratio is the time of the unwatchable model over that of ours, round by round: below 1, looking costs something.
Then what a watched forward pass takes. Writes inside.json and inside.md; takes about a minute on one core.
"""

import copy
from collections.abc import Callable

import harness
import torch
from speed import Size, ours, random_batch
from torch import Tensor

from tlm_book.attention import attention
from tlm_book.inference import generate
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.transformer_lm import TransformerLM

SMALL = Size(n_layers=4, n_heads=4, d_model=64, n=64, batch=4, vocab_size=512)  # the smaller, the more a question weighs
PROMPT, NEW = 8, 56


class Unwatched(MultiHeadAttention):
    """Attention as it was before anybody could look inside."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._queries_keys_values(x)
        heads = attention(q, k, v, self.causal, self.scale)
        return self.out(heads.transpose(-3, -2).flatten(-2))


def pair(model: TransformerLM, job: Callable[[], object], times: int = 1) -> dict[str, Callable[[], None]]:
    """The job with the model as it is and as it was: one and the same model, so that both find its weights at the same places."""

    def run(kind: type[MultiHeadAttention]) -> None:
        for block in model.blocks:
            block.attention.__class__ = kind
        for _ in range(times):
            job()

    return {"as it is": lambda: run(MultiHeadAttention), "before": lambda: run(Unwatched)}


def page(entries: harness.Entries) -> str:
    said = lambda report: (
        f"{harness.table(report['rows'])}\n\nA forward pass that keeps every intermediate result takes {report['watched / whole']} times as long as one that "
        f"keeps none.\n\n{report['rounds']} rounds, processor time, medians and half the distance of the quartiles; {harness.about(report['machine'])}."
    )
    title = "# What it costs that a model can be looked into, while nobody looks\n\nWritten by inside.py.\n\n"
    return title + harness.sections(entries, said)


def main() -> None:
    options = harness.parser(__doc__, rounds=40).parse_args()
    if options.write:
        return harness.rewrite(options.out, "inside", page)
    torch.manual_seed(0)
    x, _ = batch = random_batch(SMALL, "cpu")
    player = ours(SMALL, batch, "float32", False, "gelu_tanh")
    model = copy.deepcopy(player.model).eval()
    jobs = {
        "training step": pair(player.model, player.step, 3),
        "forward pass": pair(model, torch.inference_mode()(lambda: model(x)), 5),
        f"writing {NEW} tokens": pair(model, lambda: generate(model, x[0, :PROMPT], NEW, temperature=0)),
    }
    rows: list[dict[str, object]] = []
    for what, both in jobs.items():
        times = harness.side_by_side(both, options.rounds)
        ratio = harness.ratio(times["before"], times["as it is"], "processor")
        rows.append({"what": what} | {f"{name}, ms": times[name].ms("processor") for name in both} | {"before / as it is": ratio.text(3)})
    looks = {"whole": lambda: model(x), "watched": lambda: model.run_with_cache(x)}
    with torch.no_grad():
        times = harness.side_by_side(looks, options.rounds)
    price = harness.ratio(times["watched"], times["whole"], "processor")
    report = {"machine": harness.torch_machine(), "rounds": options.rounds, "model": vars(SMALL), "rows": rows, "watched / whole": price.text(1)}
    harness.write(options.out, "inside", report, page)


if __name__ == "__main__":
    main()
