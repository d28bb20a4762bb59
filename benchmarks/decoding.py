"""Writing 256 tokens after 16, greedily, one text, float32, beside Hugging Face's GPT2LMHeadModel.generate with its cache (sdpa),
with the same weights; and the cost of the n-th token.

    python benchmarks/decoding.py [--rounds 9] [--device cpu] [--compile]

Before anything is timed, the two must write the same tokens. The ratio is their time over ours, round by round: above 1, ours is faster.
GPT-2's activation is a formula of several elementwise steps there ("gelu_new"); the fused kernel ("gelu_pytorch_tanh") computes the same
function faster, so both are measured. Ours is the whole of `generate`, with the copy of the weights that it makes first.
The cost of the n-th token is the median over the eight steps around n; its slope is that of the line through the points
(log n, log cost) by least squares. Writes decoding.json, decoding.md and decoding.svg.
"""

import math
import statistics

import harness
import torch
import transformers
from speed import copy_weights
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.inference import CachedModel, generate
from tlm_book.transformer_lm import Config, TransformerLM

SIZES = {
    "S": {"n_layers": 4, "n_heads": 4, "d_model": 128, "vocab_size": 512},
    "L": {"n_layers": 6, "n_heads": 8, "d_model": 512, "vocab_size": 8192},
}
GOALS = {"S": (4.0, 0.15), "L": (2.2, 0.10)}  # ratio, slope
PROMPT, NEW, CONTEXT = 16, 256, 1040
ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")
COLUMNS = ("ours, ms", "theirs, ms", "ratio", "by processor time", "tokens/s")
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


def writing(name: str, activation: str, options: object) -> dict[str, object]:
    """One row of the table: both write, in turn."""
    ours, theirs = models(SIZES[name], activation, options.device)
    x = torch.randint(SIZES[name]["vocab_size"], (1, PROMPT), device=options.device)

    def our_text() -> torch.Tensor:
        return generate(ours, x, NEW, temperature=0, compile=options.compile)

    def their_text() -> torch.Tensor:
        return theirs.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0)

    same = int((our_text() == their_text()).long().cumprod(1).sum()) - PROMPT
    if same < 32:  # from then on a near tie may be rounded to either side
        raise SystemExit(f"{name}: the two write the same only for {same} tokens, so their times cannot be compared")
    found = harness.side_by_side({"ours": our_text, "theirs": their_text}, options.rounds, warmup=1, device=options.device)
    wall, processor = (harness.ratio(found["theirs"], found["ours"], clock) for clock in ("wall", "processor"))
    row = {
        "size": name, "their activation": activation, "ours, ms": found["ours"].ms(), "theirs, ms": found["theirs"].ms(),
        "ratio": wall.text(), "by processor time": processor.text(), "goal": GOALS[name][0],
        "tokens/s": round(NEW / statistics.median(found["ours"].wall)),
    }
    print(row, flush=True)
    return row


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
        {"size": row["size"]} | {f"n = {n}": ms for n, ms in zip(LENGTHS, row["wall, ms"], strict=True)}
        | {"slope": row["slope, wall"], "by processor time": row["slope, processor"], "goal": row["goal"]}
        for row in report["cost"]
    ]  # fmt: skip


def page(entries: harness.Entries) -> str:
    rows = harness.abreast({name: report["writing"] for name, report in entries.items()}, ("size", "their activation"), COLUMNS)
    text = f"{NEW} tokens after {PROMPT}, medians and quartiles; ratio: theirs / ours.\n\n{harness.table(rows)}\n\n"
    said = lambda report: f"Milliseconds of the n-th token.\n\n{harness.table(by_length(report))}\n\n{report['rounds']} rounds; {harness.about(report['machine'])}."
    return text + harness.sections(entries, said)


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
    costs = [cost(name, options) for name in SIZES]
    facts = harness.torch_machine(options.device, transformers=transformers.__version__)
    report = {"machine": facts, "rounds": options.rounds, "compile": options.compile, "sizes": SIZES, "writing": rows, "cost": costs}
    harness.write(options.out, "decoding", report, page, draw)


if __name__ == "__main__":
    main()
