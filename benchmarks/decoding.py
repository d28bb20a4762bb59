"""Writing 256 tokens after 16, greedily, one text, float32, beside Hugging Face's GPT2LMHeadModel.generate with its cache (sdpa),
with the same weights; batches of texts; weights in fewer bits; the forms of the products; and the cost of the n-th token.

    python benchmarks/decoding.py [--rounds 9] [--device cpu] [--compile]

Before anything is timed, the two must write the same tokens. The ratio is their time over ours, round by round: above 1, ours is faster.
GPT-2's activation is a formula of several elementwise steps there ("gelu_new"); the fused kernel ("gelu_pytorch_tanh") computes the same
function faster, so both are measured. Ours is the whole of `generate`, with the copy of the weights that it makes first. Each is measured as
it comes and compiled, theirs then with a cache of fixed size; the first text of a compiled program, which waits for the compiler (with none of its
results kept from before), is timed by itself.
The limit is measured in the same rounds: a step reads every weight once, so where the weights come from memory (L) it is hardly faster than a plain
sum over the matrices (`Tensor.sum`, one after the other, all threads); S's stay in the cache, where that is no limit. The cost of the n-th token is
the median over the eight steps around n; its slope is that of the line through the points (log n, log cost) by least squares.
Writes decoding.json, decoding.md and decoding.svg; on two cores the part with the compiled programs alone takes about ten minutes.
"""

import functools
import math
import statistics
from collections.abc import Callable

import harness
import torch
import transformers
from speed import copy_weights
from torch._inductor.utils import fresh_cache
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.inference import CachedModel, generate
from tlm_book.inference.products import FORMS, forget
from tlm_book.transformer_lm import Config, TransformerLM

SIZES = {
    "S": {"n_layers": 4, "n_heads": 4, "d_model": 128, "vocab_size": 512},
    "L": {"n_layers": 6, "n_heads": 8, "d_model": 512, "vocab_size": 8192},
}
GOALS = {"S": (4.0, 0.15), "L": (2.0, 0.10)}  # ratio, slope
FROM_MEMORY = ("L",)  # weights that no cache holds
PROMPT, NEW, CONTEXT = 16, 256, 1040
ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")
BATCHES, BATCH_NEW = (1, 4, 16, 64), 64
BITS = {"float32": None, "bfloat16": "bfloat16", "int8": "int8"}
FEW = {"batches": ("ours, tokens/s", "ratio"), "fewer bits": ("gain", "gain, compiled", "off by", "same tokens")}
LENGTHS = (64, 128, 256, 512, 1024)


def models(size: dict[str, int], activation: str, device: str) -> tuple[TransformerLM, GPT2LMHeadModel]:
    """Ours and theirs with the same weights, large enough that the likeliest tokens differ from step to step."""
    torch.manual_seed(0)
    ours = TransformerLM(Config.gpt2(**size, d_ff=4 * size["d_model"], max_len=CONTEXT))
    with torch.no_grad():
        for w in ours.parameters():
            w.mul_(2)
    config = GPT2Config(
        vocab_size=size["vocab_size"], n_positions=CONTEXT, n_embd=size["d_model"], n_layer=size["n_layers"], n_head=size["n_heads"],
        attn_implementation="sdpa", activation_function=activation, bos_token_id=None, eos_token_id=None,
    )
    theirs = GPT2LMHeadModel(config)
    copy_weights(ours, theirs)
    return ours.to(device).eval(), theirs.to(device).eval()


def read_once(model: TransformerLM) -> Callable[[], None]:
    """A plain sum over every matrix that a step multiplies."""
    matrices = [product.W for product in CachedModel(model, products="linear").products.all]
    return lambda: [W.sum() for W in matrices] and None


def their_text(theirs: GPT2LMHeadModel, x: torch.Tensor, n_new: int, **more: object) -> torch.Tensor:
    options = {"do_sample": False, "use_cache": True, "pad_token_id": 0, **more}
    return theirs.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=n_new, **options)


def their_compiled_text(theirs: GPT2LMHeadModel, x: torch.Tensor, n_new: int) -> Callable[[], torch.Tensor]:
    """The same by a model of which torch compiles the forward pass; its cache has its whole size from the start, or each length would be compiled."""
    theirs.forward = torch.compile(theirs.forward)
    return lambda: their_text(theirs, x, n_new, cache_implementation="static")


def writing(name: str, activation: str, options: object) -> dict[str, object]:
    """One row of the table: both write, in turn, and the weights are summed."""
    ours, theirs = models(SIZES[name], activation, options.device)
    x = torch.randint(SIZES[name]["vocab_size"], (1, PROMPT), device=options.device)
    jobs = {
        "ours": lambda: generate(ours, x, NEW, temperature=0, compile=options.compile),
        "compiled": lambda: generate(ours, x, NEW, temperature=0, compile=True),
        "theirs": lambda: their_text(theirs, x, NEW),
        "theirs, compiled": their_compiled_text(models(SIZES[name], activation, options.device)[1], x, NEW),
        "sum": read_once(ours),
    }
    torch.compiler.reset()
    with fresh_cache():
        first = {who: harness.timed(jobs[who])[0] for who in ("compiled", "theirs, compiled")}
    wanted = jobs["theirs"]()
    same = min(int((jobs[who]() == wanted).long().cumprod(1).sum()) for who in ("ours", "compiled", "theirs, compiled")) - PROMPT
    if same < 32:  # from then on a near tie may be rounded to either side
        raise SystemExit(f"{name}: the two write the same only for {same} tokens, so their times cannot be compared")
    found = harness.side_by_side(jobs, options.rounds, warmup=1, device=options.device)
    wall, processor = (harness.ratio(found["theirs"], found["ours"], clock) for clock in ("wall", "processor"))
    each, quick, limit = (1 / statistics.median(found[who].wall) for who in ("ours", "compiled", "sum"))
    compiled = {
        "compiled, ms": found["compiled"].ms(), "theirs / compiled": harness.ratio(found["theirs"], found["compiled"]).text(),
        "compiled, tokens/s": round(NEW * quick), "compiled, of the limit": f"{NEW * quick / limit:.0%}",
        "theirs compiled / compiled": harness.ratio(found["theirs, compiled"], found["compiled"]).text(),
        "first text compiled, s": round(first["compiled"]), "their first text compiled, s": round(first["theirs, compiled"]),
    }  # fmt: skip
    row = {
        "size": name, "their activation": activation, "ours, ms": found["ours"].ms(), "theirs, ms": found["theirs"].ms(),
        "ratio": wall.text(), "by processor time": processor.text(), "goal": GOALS[name][0],
        "tokens/s": round(NEW * each), "limit, tokens/s": round(limit), "of the limit": f"{NEW * each / limit:.0%}",
    } | compiled  # fmt: skip
    print(row, flush=True)
    return row


def batches(name: str, options: object) -> list[dict[str, object]]:
    """Tokens a second of several texts side by side, ours and theirs."""
    ours, theirs = models(SIZES[name], "gelu_pytorch_tanh", options.device)
    rows = []
    for B in BATCHES:
        x = torch.randint(SIZES[name]["vocab_size"], (B, PROMPT), device=options.device)
        jobs = {"ours": lambda: generate(ours, x, BATCH_NEW, temperature=0, compile=options.compile), "theirs": lambda: their_text(theirs, x, BATCH_NEW)}
        found = harness.side_by_side(jobs, max(3, options.rounds // 2), warmup=1, device=options.device)
        speed = {f"{who}, tokens/s": round(B * BATCH_NEW / statistics.median(times.wall)) for who, times in found.items()}
        rows.append({"texts": B, "size": name} | speed | {"ratio": harness.ratio(found["theirs"], found["ours"]).text()})
        print(rows[-1], flush=True)
    return rows


@torch.inference_mode()
def continued(cached: CachedModel, x: torch.Tensor) -> torch.Tensor:
    """The likeliest tokens after x, by a model that has been prepared."""
    token = cached.read(x).argmax(-1)
    return torch.stack([token, *(token := cached.step(token).argmax(-1) for _ in range(NEW - 1))], 1)


def fewer_bits(name: str, options: object) -> list[dict[str, object]]:
    """Weights in fewer bits: time, gain, and how long the text stays the same; compiled, the time and the gain over float32, not compiled."""
    ours, _ = models(SIZES[name], "gelu_new", options.device)
    x = torch.randint(SIZES[name]["vocab_size"], (1, PROMPT), device=options.device)
    ready = {bits: CachedModel(ours, weights=stored) for bits, stored in BITS.items()}
    quick = {bits: CachedModel(ours, True, weights=stored) for bits, stored in BITS.items()}
    jobs = {bits: functools.partial(continued, cached, x) for bits, cached in ready.items()}
    compiled = {f"{bits}, compiled": functools.partial(continued, cached, x) for bits, cached in quick.items()}
    texts, scores = ({bits: run() for bits, run in some.items()} for some in (jobs, {bits: functools.partial(cached.read, x) for bits, cached in ready.items()}))
    found = harness.side_by_side(jobs | compiled, options.rounds, warmup=1, device=options.device)
    rows = []
    for bits in BITS:
        off = (scores[bits] - scores["float32"]).abs().max() / scores["float32"].std()
        same = int((texts[bits] == texts["float32"]).long().cumprod(1).sum())
        times, faster = found[bits], found[f"{bits}, compiled"]
        gains = [harness.ratio(found["float32"], it).text() for it in (times, faster)]
        rows.append(
            {"weights": bits, "size": name, "ms": times.ms(), "gain": gains[0], "off by": f"{off:.2%}", "same tokens": same}
            | {"compiled, ms": faster.ms(), "gain, compiled": gains[1]}
        )
        print(rows[-1], flush=True)
    return rows


def forms(name: str, options: object) -> list[dict[str, object]]:
    """The forms that were tried for the products of a row of one text and of several, and the ones that were chosen."""
    ours, _ = models(SIZES[name], "gelu_new", options.device)
    forget()
    rows = []
    for B in BATCHES:
        products = CachedModel(ours).products
        products.prepare(B)
        for (d, out, _), choice in products.choices.items():
            took = {form: round(choice.milliseconds[form], 3) for form in FORMS if form in choice.milliseconds}
            rows.append({"texts": B, "matrix": f"{d} × {out}"} | dict.fromkeys(FORMS) | took | {"chosen": choice.form})
    return rows


def cost(name: str, options: object) -> dict[str, object]:
    """Milliseconds of the n-th token, and the slope of log cost over log n, by both clocks."""
    ours, _ = models(SIZES[name], "gelu_new", options.device)
    decoder, token = CachedModel(ours, options.compile), torch.tensor([1], device=options.device)
    decoder.read([torch.randint(SIZES[name]["vocab_size"], (CONTEXT - 1,), device=options.device)])

    def around(n: int) -> None:
        """Eight steps; the last looks at n + 4 rows."""
        decoder.lengths = [n - 4]
        for _ in range(8):
            decoder.step(token)

    found = harness.side_by_side({str(n): lambda n=n: around(n) for n in LENGTHS}, 5 * options.rounds, warmup=3, device=options.device)
    row: dict[str, object] = {"size": name}
    for clock in ("wall", "processor"):
        medians = [statistics.median(getattr(found[str(n)], clock)) / 8 for n in LENGTHS]
        slope, _ = statistics.linear_regression([math.log(n) for n in LENGTHS], [math.log(t) for t in medians])
        row |= {f"{clock}, ms": [round(1e3 * t, 3) for t in medians], f"slope, {clock}": round(slope, 3)}
    row["goal"] = GOALS[name][1]
    print(row, flush=True)
    return row


def by_length(report: harness.Report) -> list[dict[str, object]]:
    return [
        {"model": row["size"]} | {f"n = {n}": ms for n, ms in zip(LENGTHS, row["wall, ms"], strict=True)}
        | {"slope": row["slope, wall"], "by processor time": row["slope, processor"], "goal": row["goal"]}
        for row in report["cost"]
    ]  # fmt: skip


def by_machine(entries: harness.Entries, compiled: bool = False) -> list[dict[str, object]]:
    """One row for each machine and size: our speed and its limit in the run beside their first activation, and the ratio for both; `compiled`, beside
    theirs compiled, too, for the machines on which that was measured."""
    found: list[dict[str, object]] = []
    prefix, ratio = ("compiled, ", "theirs / compiled") if compiled else ("", "ratio")
    for name, short in harness.short_names(entries).items():
        for size in SIZES:
            usual, fused = (row for row in entries[name]["writing"] if row["size"] == size)
            if ratio in usual:
                speed = {"tokens/s": usual[f"{prefix}tokens/s"], "limit": usual.get("limit, tokens/s") if size in FROM_MEMORY else None}
                row = {"processor": short, "size": size, **speed, "theirs / ours": usual[ratio], "with fused GELU": fused[ratio]}
                found.append(row | ({"both compiled": usual["theirs compiled / compiled"]} if compiled else {}))
    return found


def page(entries: harness.Entries) -> str:
    """The machines one below the other or side by side, and what else was found on each."""
    side = lambda what, keys, columns: harness.abreast({name: report.get(what, []) for name, report in entries.items()}, keys, columns, FEW[what])
    text = f"{NEW} tokens after {PROMPT}, one text; limit: a plain sum over the weights.\n\n"
    text += f"{harness.table(by_machine(entries))}\n\n{harness.measured(entries)}\n\n"
    if compiled := by_machine(entries, compiled=True):
        text += f"Ours compiled; in the last column theirs, too.\n\n{harness.table(compiled)}\n\n"
    if any(report.get("batches") for report in entries.values()):
        text += f"{BATCH_NEW} tokens after {PROMPT} in each of several texts.\n\n"
        text += f"{harness.table(side('batches', ('texts', 'size'), ('ours, tokens/s', 'theirs, tokens/s', 'ratio')))}\n\n"
        text += "Weights in fewer bits: gain over float32 that is not compiled; how far the scores after the prompt are off at most (1: as far as they "
        text += "spread), and for how many tokens the text is the same.\n\n"
        text += f"{harness.table(side('fewer bits', ('weights', 'size'), ('ms', 'gain', 'compiled, ms', 'gain, compiled', 'off by', 'same tokens')))}\n\n"
    return text + harness.sections(entries, said)


def said(report: harness.Report) -> str:
    text = f"One text, all figures; ratio: theirs / ours.\n\n{harness.table(report['writing'])}\n\n"
    if report.get("notes"):
        text += f"{report['notes']}\n\n"
    if report.get("forms"):
        text += f"Milliseconds of one product of a row of each text at L, from memory, in each form.\n\n{harness.table(report['forms'])}\n\n"
    text += f"Milliseconds of the n-th token.\n\n{harness.table(by_length(report))}\n\n"
    return text + f"Medians of {report['rounds']} rounds, with quartiles; {harness.about(report['machine'])}."


def draw(report: harness.Report, axes: object) -> None:
    harness.bars(axes, {f"{row['size']}, {row['their activation']}": float(row["ratio"].split()[0]) for row in report["writing"]}, mark=1.0, unit=" ×")
    axes.set_xlabel("their time / ours")


def main() -> None:
    parser = harness.parser(__doc__, rounds=9)
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda"')
    parser.add_argument("--compile", action="store_true", help="our steps through torch.compile")
    options = parser.parse_args()
    if options.write:
        return harness.rewrite(options.out, "decoding", page, draw)
    transformers.logging.set_verbosity_error()
    rows = [writing(name, activation, options) for name in SIZES for activation in ACTIVATIONS]
    report = {
        "machine": harness.torch_machine(options.device, transformers=transformers.__version__), "rounds": options.rounds, "compile": options.compile,
        "sizes": SIZES, "writing": rows, "batches": [row for name in SIZES for row in batches(name, options)], "fewer bits": fewer_bits("L", options),
        "forms": forms("L", options), "cost": [cost(name, options) for name in SIZES],
    }  # fmt: skip
    harness.write(options.out, "decoding", report, page, draw)


if __name__ == "__main__":
    main()
