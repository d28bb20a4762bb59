"""Llama beside Hugging Face's LlamaForCausalLM (sdpa), in one run, with the same weights: a training step, a forward pass, and
writing 256 tokens after 16 with the cache.

    python benchmarks/llama.py [--rounds 16] [--device cpu] [--sizes S L]

Sizes as in speed.py, with Llama's shape: RMS norm, rotary positions, a gated feed-forward layer of width 8d/3, a head of keys and values for
four of queries. Before anything is timed, the two must give the same loss and write the same tokens. The runs alternate; the ratio is
their time over ours, round by round: above 1, ours is faster. Then the gate alone: its first two matrices as one product or as two.
Writes llama.json, llama.md and llama.svg; takes about three minutes on two cores.
"""

import functools
from collections.abc import Callable

import harness
import torch
import transformers
from decoding import NEW, PROMPT
from speed import SETTINGS, SIZES, Player, Size, few, ours, random_batch, usual_step
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from tlm_book.inference import generate
from tlm_book.pretrained.llama import llama_pairs
from tlm_book.pretrained.names import to_file
from tlm_book.transformer_lm import Config, TransformerLM

FEW = ("theirs / ours",)  # of each machine, where there are several
COLUMNS = ("ours, ms", "theirs, ms", "theirs / ours", "in processor time")


class LlamaSize(Size):
    """A size as in speed.py, with Llama's shape."""

    def config(self, activation: str = "silu", max_len: int | None = None) -> Config:
        sizes = {name: getattr(self, name) for name in ("n_layers", "n_heads", "d_model")}
        width = 32 * round(8 * self.d_model / 3 / 32)
        return Config.llama(self.vocab_size, **sizes, d_ff=width, n_kv_heads=max(1, self.n_heads // 4), max_len=max_len or self.n, activation=activation)


def peer(model: TransformerLM) -> LlamaForCausalLM:
    """Theirs, with our weights."""
    c = model.config
    config = LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.d_model, intermediate_size=c.d_ff, num_hidden_layers=c.n_layers, num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads, max_position_embeddings=c.max_len, rms_norm_eps=c.eps, attn_implementation="sdpa", bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    theirs = LlamaForCausalLM(config).to(model.embedding.table.weight.device)
    theirs.load_state_dict(to_file(model.state_dict(), llama_pairs(model, "llama")))
    return theirs


def their_player(model: TransformerLM, batch: tuple[torch.Tensor, torch.Tensor]) -> Player:
    """Their usual training step: as in speed.py for GPT-2."""
    theirs = peer(model).train()
    theirs.config.use_cache = False
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=SETTINGS.lr, weight_decay=0.0, fused=True)
    loss = lambda x, y: theirs(input_ids=x, labels=y, shift_labels=y).loss
    return Player(theirs, loss, usual_step(theirs, optimizer, lambda: loss(*batch)))


def row(size: str, what: str, times: dict[str, harness.Timing]) -> dict[str, object]:
    wall, processor = (harness.ratio(times["theirs"], times["ours"], clock) for clock in ("wall", "processor"))
    made = {"size": size, "what": what, "ours, ms": times["ours"].ms(), "theirs, ms": times["theirs"].ms(), "theirs / ours": wall.text()}
    made["in processor time"] = f"{processor.median:.2f}"
    print(made, flush=True)
    return made


def training(name: str, options: object) -> list[dict[str, object]]:
    """A training step and a forward pass."""
    torch.manual_seed(0)
    size, batch = LlamaSize(**vars(SIZES[name])), random_batch(SIZES[name], options.device)
    mine = ours(size, batch, "float32", False, "silu")
    other = their_player(mine.model, batch)
    gap = abs(mine.loss(*batch) - other.loss(*batch)).item()
    if gap > 1e-4:
        raise SystemExit(f"{name}: the two differ by {gap:.2g} in their loss, so their times cannot be compared")
    jobs: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "training step": (mine.step, other.step),
        "forward": (functools.partial(mine.forward, *batch), functools.partial(other.forward, *batch)),
    }
    measure = functools.partial(harness.side_by_side, rounds=few(options, name), device=options.device)
    return [row(name, what, measure({"ours": a, "theirs": b})) for what, (a, b) in jobs.items()]


def writing(name: str, options: object) -> dict[str, object]:
    """256 tokens after 16, greedily."""
    torch.manual_seed(0)
    model = TransformerLM(LlamaSize(**vars(SIZES[name])).config(max_len=PROMPT + NEW)).to(options.device).eval()
    with torch.no_grad():
        for w in model.parameters():
            w.mul_(2)  # so that the likeliest tokens differ from step to step
    other = peer(model).eval()
    x = torch.randint(model.config.vocab_size, (1, PROMPT), device=options.device)
    mine = lambda: generate(model, x, NEW, temperature=0)
    theirs = lambda: other.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0)
    same = int((mine() == theirs()).long().cumprod(1).sum()) - PROMPT
    if same < 32:  # from then on a near tie may be rounded to either side
        raise SystemExit(f"{name}: the two write the same only for {same} tokens, so their times cannot be compared")
    rounds = max(3, options.rounds // 2)
    return row(name, f"writing {NEW} tokens", harness.side_by_side({"ours": mine, "theirs": theirs}, rounds, warmup=1, device=options.device))


def gate(name: str, options: object) -> str:
    """Forward and backward through the gated layer, its first two matrices in two products or in one."""
    torch.manual_seed(0)
    size = LlamaSize(**vars(SIZES[name]))
    c, x = size.config(), torch.randn(size.batch, size.n, size.d_model, device=options.device, requires_grad=True)
    linear = functools.partial(nn.Linear, bias=False, device=options.device)
    both, down = linear(c.d_model, 2 * c.d_ff), linear(c.d_ff, c.d_model)
    first, second = (linear(c.d_model, c.d_ff) for _ in range(2))

    def two() -> None:
        down(F.silu(first(x)) * second(x)).sum().backward()

    def one() -> None:
        a, b = both(x).chunk(2, -1)
        down(F.silu(a) * b).sum().backward()

    times = harness.side_by_side({"one": one, "two": two}, options.rounds, device=options.device)
    return f"{name}: {times['one'].ms()} ms in one product, {times['two'].ms()} ms in two, {harness.ratio(times['two'], times['one']).text()} times as long"


def page(entries: harness.Entries) -> str:
    """The machines side by side, and what else was said of each."""
    rows = harness.abreast({name: report["rows"] for name, report in entries.items()}, ("size", "what"), COLUMNS, FEW)
    text = f"Llama beside LlamaForCausalLM, float32. Above 1, ours is faster; in brackets the quartiles.\n\n{harness.table(rows)}\n\n{harness.measured(entries)}\n\n"
    return text + harness.sections(entries, said)


def said(report: harness.Report) -> str:
    gate = f"The gated layer, forward and backward. {report['gate']}."
    return f"{harness.table(report['rows'])}\n\n{gate}\n\n{harness.about(report['machine'])}."


def draw(report: harness.Report, axes: object) -> None:
    ratios = {f"{made['size']}, {made['what']}": float(made["theirs / ours"].split()[0]) for made in report["rows"]}
    harness.bars(axes, ratios, mark=1.0, unit=" ×")
    axes.set_xlabel("their time / ours")


def main() -> None:
    parser = harness.parser(__doc__, rounds=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", nargs="+", choices=("S", "L"), default=("S", "L"))
    options = parser.parse_args()
    if options.write:
        return harness.rewrite(options.out, "llama", page, draw)
    transformers.logging.set_verbosity_error()
    rows = [made for name in options.sizes for made in (*training(name, options), writing(name, options))]
    gates = "; ".join(gate(name, options) for name in options.sizes)
    facts = harness.torch_machine(options.device, transformers=transformers.__version__)
    harness.write(options.out, "llama", {"machine": facts, "rounds": options.rounds, "rows": rows, "gate": gates}, page, draw)


if __name__ == "__main__":
    main()
