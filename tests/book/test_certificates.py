"""The proof assistant accepts the book's two files and every honest certificate, on no axiom, and rejects forged ones.

Without coqc the tests that need it are skipped; `make proofs` runs this file and says how to get Coq.
"""

import contextlib
import io
import re
from pathlib import Path

import chapters as book
import pytest
import torch
from torch import nn

from tlm_book import derivation
from tlm_book.__main__ import main, preset_model
from tlm_book.arguments import PRESETS
from tlm_book.decoder_block import DecoderBlock
from tlm_book.derivation import (
    MEANS,
    Derivation,
    Kind,
    assumptions,
    calculus,
    coq,
    derive,
    register_rule,
)
from tlm_book.derivation import rules as rules_of_modules
from tlm_book.derivation.certificate import LEAF_FORMS
from tlm_book.graph_networks import PositionalNetwork
from tlm_book.positional_encoding import PositionalEncoding
from tlm_book.transformer_lm import Config, TransformerLM

needs_coq = pytest.mark.skipif(coq.coqc() is None, reason=coq.HOW_TO_GET_COQ)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("proofs")
    coq.compile_proofs(folder)
    return folder


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """The registered rules are afterwards what they were; false ones are believed, for it is Coq that is tried here."""
    monkeypatch.setattr(rules_of_modules, "_RULES", dict(rules_of_modules._RULES))
    monkeypatch.setattr(rules_of_modules, "of_the_book", lambda rule: True)


def tiny(**changes) -> TransformerLM:
    return TransformerLM(Config(7, d_model=4, d_ff=6, n_layers=2, n_heads=2, max_len=9, **changes)).eval()


def encoder(**options) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


# --- The two files


def test_the_files_are_short_and_have_no_hole():
    for name in coq.PROOF_FILES:
        text = coq.source(name)
        assert len(text.splitlines()) <= 400
        code = re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)
        assert not re.search(r"\b(Axiom|Axioms|Conjecture|Parameter|Parameters|Admitted|admit|Abort|Unset)\b", code), name


def test_every_lemma_of_the_book_names_its_statement():
    """Each machine-checked statement is named in a comment of the files, and is one that a chapter states; each of its lemmas is there."""
    comments = " ".join(re.findall(r"\(\*.*?\*\)", "".join(map(coq.source, coq.PROOF_FILES)), re.DOTALL))
    stated = {name for page in book.chapters() for cell in book.read(page).cells if cell.cell_type == "markdown"
              for name in re.findall(r'<a id="([^"]+)"', cell.source)}  # fmt: skip
    for name, lemmas in coq.MACHINE_CHECKED.items():
        assert name in stated and re.search(rf"\b{name}\b", comments), name
        assert all(coq.passage(lemma, proof=True).endswith("Qed.") for lemma in lemmas), name
    assert set(re.findall(r"\b[WTLBAM]-[a-z][\w-]*\w", comments)) <= stated


def test_a_passage_that_is_not_there():
    with pytest.raises(ValueError, match="name: got 'nonsense', want one that is defined or proved"):
        coq.passage("nonsense")


@pytest.mark.long
@needs_coq
def test_the_lemmas_rest_on_the_listed_axioms(compiled):
    names = [lemma for lemmas in coq.MACHINE_CHECKED.values() for lemma in lemmas]
    asked = "From TLM Require Import Operators Derivation.\n" + "".join(f"Print Assumptions {name}.\n" for name in names)
    verdict = coq.run(asked, compiled)
    assert verdict.accepted, verdict.output
    assert verdict.axioms == coq.AXIOMS and verdict.output.count(coq.CLOSED) == len(names)


@pytest.mark.long
@needs_coq
def test_an_axiom_would_be_seen(compiled):
    asked = "Axiom oracle : forall n : nat, n = 0.\nLemma all : 1 = 0. Proof. apply oracle. Qed.\nPrint Assumptions all.\n"
    verdict = coq.run(asked, compiled)
    assert verdict.accepted and verdict.axioms == ("oracle",)


# --- Certificates

MODELS = {
    "torch's encoder": lambda: derivation.Causal(encoder()),
    "torch's encoder, norm first": lambda: derivation.Causal(encoder(norm_first=True)),
    "torch's decoder": lambda: derivation.Causal(nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2)).eval(),
    "parallel block": lambda: DecoderBlock(4, 2, 6, norm="pre", eps=1e-3, variant="parallel"),
    "simplified block": lambda: DecoderBlock(4, 2, 6, norm="pre", eps=1e-3, variant="simplified"),
    "positions alone": lambda: PositionalEncoding(9, 4),
    "linear alone": lambda: nn.Sequential(nn.Linear(4, 4)),
    "network on positions": lambda: PositionalNetwork(9, 4, 6),
    "nothing": lambda: nn.Sequential(),
}


@needs_coq
@pytest.mark.long
@pytest.mark.parametrize("name", [*PRESETS, *MODELS])
def test_an_honest_certificate_is_accepted(name, compiled):
    model = preset_model(name) if name in PRESETS else MODELS[name]()
    verdict = coq.run(derive(model).certificate(), compiled)
    assert verdict == coq.Verdict(True, coq.AXIOMS, coq.CLOSED + "\n"), verdict.output
    assert all(leaf.checks for leaf in assumptions(derive(model))), "an assumption that no check of the book tries"


FORGERIES = {
    "the mask is removed": ("MaskedSoftmax", "Softmax"),
    "a wrong kind is claimed": (r"= Autoregressive\. Proof", "= Rowwise. Proof"),
    "a wrong kind of pattern": ("= CausalPattern", "= EquivariantPattern"),
    "positions are said to be one map": (r"\b0 => OneMap \| 1 => MapOfPlace", "0 => OneMap | 1 => OneMap"),
    "a leaf is of another form than assumed": ("has_form N MapOfPlace m", "has_form N SameForAll m"),
    "the product is a residual": (r"Product (node_\d+) node_\d+", r"Residual \1"),
    "the theorem says more": (r"-> autoregressive T\.", "-> rowwise T."),
    "nothing is proved": (r"Proof\. apply \(derived.*", "Admitted."),
}


@needs_coq
@pytest.mark.long
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_is_rejected(name, compiled):
    honest = derive(tiny()).certificate()
    forged = re.sub(*FORGERIES[name], honest, count=1)
    assert forged != honest
    verdict = coq.run(forged, compiled)
    assert not verdict.accepted or verdict.axioms != coq.AXIOMS


class Centring(nn.Module):
    def forward(self, x):
        return x - x.mean(-2, keepdim=True)


def forget_a_premise(monkeypatch) -> nn.Module:
    monkeypatch.setattr(calculus, "weakest", lambda premises: max((p.kind for p in premises), key=lambda kind: len(MEANS.get(kind, ()))))
    return nn.Sequential(nn.Linear(4, 4), encoder())


def ask_nothing_of_keys(monkeypatch) -> nn.Module:
    monkeypatch.setattr(Derivation, "autoregressive", property(lambda self: True))
    register_rule(Centring)(lambda module: calculus.primitive("centring", Kind.EQUIVARIANT, "subtracts the mean of all rows"))

    @register_rule(nn.Bilinear)  # stands for a layer whose keys are centred
    def _peeking(module):
        linear = derive(nn.Linear(4, 4))
        return calculus.product("head", calculus.pattern("A", linear, derive(Centring())), linear)

    return nn.Bilinear(4, 4, 4)


def forget_the_mask(monkeypatch) -> nn.Module:
    def unmasked(module):
        rows = derive(module.qkv)
        return calculus.product("H", Derivation("A", Kind.CAUSAL_PATTERN, "softmax of scores", (rows, rows)), rows)

    model = tiny()
    register_rule(type(model.blocks[0].attention))(unmasked)
    return model


def declare_centring(monkeypatch) -> nn.Module:
    register_rule(Centring)(lambda module: calculus.primitive("centring", Kind.AUTOREGRESSIVE, "subtracts the mean of all rows"))
    return nn.Sequential(nn.Linear(4, 4), Centring())


def call_positions_rowwise(monkeypatch) -> nn.Module:
    register_rule(PositionalEncoding)(lambda module: calculus.primitive("PE", Kind.ROWWISE, "adds row i of a table to row i"))
    return tiny()


@needs_coq
@pytest.mark.parametrize("mistake", [forget_a_premise, ask_nothing_of_keys, forget_the_mask, declare_centring, call_positions_rowwise])
def test_a_mistake_in_the_calculus_is_caught(mistake, monkeypatch, compiled):
    """Python is fooled: it claims a proof and writes a certificate. Coq is not."""
    model = mistake(monkeypatch)
    proof = derive(model)
    assert proof.autoregressive
    verdict = coq.run(proof.certificate(), compiled)
    assert not verdict.accepted and "Unable to unify" in verdict.output


@pytest.mark.long
@needs_coq
def test_a_rule_of_ones_own_is_an_assumption(compiled):
    register_rule(Centring)(lambda module: calculus.primitive("mine", Kind.AUTOREGRESSIVE, "because I say so"))
    proof = derive(nn.Sequential(nn.Linear(4, 4), Centring()))
    assert coq.run(proof.certificate(), compiled).accepted
    assumed = {leaf.subject: leaf for leaf in assumptions(proof)}
    assert assumed["mine"].checks == () and assumed["mine"].form == "(Declared Autoregressive)"
    assert "says a rule outside the book; not tried by the book" in proof.certificate()


def test_where_the_proof_stops_is_said():
    stops = {
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)): r"a proof that stops at BatchNorm1d \(no rule for this type; help\(derive\) shows how to write one\)",
        tiny(dropout=0.5).train(): r"a proof that stops at Dropout\(0.5\) \(random in training mode\)",
        encoder(): "TransformerEncoder, of which only 'permutation-equivariant' is proved",
        nn.Sequential(nn.BatchNorm1d(4), nn.Softmax(0)): r"stops at BatchNorm1d \(no rule for this type; help\(derive\) shows how to write one\), Softmax\(dim=0\) \(not along",
    }
    for model, words in stops.items():
        with pytest.raises(ValueError, match=f"derivation: got .*{words}.*, want an autoregressive one"):
            derive(model).certificate()
    linear = derive(nn.Linear(4, 4))
    odd = Derivation("difference", Kind.ROWWISE, "difference", (linear, linear))
    with pytest.raises(ValueError, match="got a step by 'difference' to difference, want one of composition, sum"):
        odd.certificate()


def test_one_concatenation_may_stand_for_several_heads():
    linear = derive(nn.Linear(4, 4))
    assert "Several node_0." in derivation.concat("H", linear).certificate()
    assert "Several node_0." in derivation.concat("H", *[linear] * 8).certificate()
    other = derive(nn.Linear(4, 5))
    assert "Combine (Several node_0) node_1." in derivation.concat("H", linear, linear, other).certificate()


def test_comments_cannot_be_left():
    """The name of a module is text: whatever it holds stays inside the comment."""
    linear = calculus.primitive('odd *) Axiom a : False. (* "', Kind.ROWWISE, "one map for all rows")
    text = calculus.compose("T", linear).certificate()
    assert "*) Axiom" not in text and text.count("(*") == text.count("*)") and text.count('"') == 0


def test_every_check_that_is_named_is_one():
    checked = {name for page in book.chapters() for cell in book.read(page).cells if cell.cell_type == "code"
               for name in book.directives(cell.source).get("checks", "").split()}  # fmt: skip
    assert {name for form in LEAF_FORMS.values() for name in form.checks} <= checked


# --- The command


def said(*arguments: str) -> tuple[int, str]:
    report = io.StringIO()
    with contextlib.redirect_stdout(report), contextlib.redirect_stderr(report):
        status = main(["prove", *arguments])
    return status, report.getvalue()


@needs_coq
def test_prove_says_what_was_proved_and_what_assumed(tmp_path):
    status, report = said("--preset", "gpt2", "--out", str(tmp_path / "gpt2.v"))
    assert status == 0 and (tmp_path / "gpt2.v").read_text(encoding="utf-8") == derive(preset_model("gpt2")).certificate()
    assert "Proved by Coq, without axioms" in report
    leaves = assumptions(derive(preset_model("gpt2")))
    assert f"Assumed of the {len(leaves)} leaves:" in report
    assert [line for line in report.splitlines() if re.match(r"  \d+\. ", line)][len(leaves) - 1].startswith(f"  {len(leaves)}. ")
    for leaf in leaves:
        assert re.search(rf"\d\. {re.escape(leaf.subject)}, {leaf.places} place.*; tried by {', '.join(leaf.checks)}", report)


@needs_coq
def test_prove_reads_a_model_that_was_trained():
    status, report = said("--model", str(book.SOURCE / "data" / "model"))
    assert status == 0 and "row look-up" in report


def test_prove_without_a_proof(tmp_path, monkeypatch):
    from tlm_book.derivation import prove

    out = tmp_path / "none.v"
    report, status = prove.prove(encoder(), out)
    assert status == 1 and report.startswith("No theorem. derivation: got TransformerEncoder, of which only") and not out.exists()
    rejected = coq.Verdict(False, (), "Error: Unable to unify")
    assert "nothing is proved" in prove.conclusion((), rejected) and "Unable" in prove.conclusion((), rejected)
    assert "axioms that the book does not allow: oracle" in prove.conclusion((), coq.Verdict(True, ("oracle",), ""))
    with pytest.raises(SystemExit, match="2"):
        said("--preset", "nonsense")


def test_prove_is_no_success_on_axioms_that_are_not_allowed(monkeypatch):
    from tlm_book.derivation import prove

    monkeypatch.setattr(coq, "coqc", lambda: "coqc")
    for axioms, accepted, want in (((), True, 0), (("oracle",), True, 1), ((), False, 1)):
        monkeypatch.setattr(coq, "check_certificate", lambda text: coq.Verdict(accepted, axioms, ""))
        report, status = prove.prove(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
        assert status == want and ("Proved by Coq" in report) == (want == 0)
        if want == 0:
            assert "Linear(4 → 4), 2 places: " in report and "ReLU, 1 place: " in report


def test_a_normalization_is_tried_by_the_checks_of_its_own_statements():
    checks = {leaf.subject: leaf.checks for leaf in assumptions(derive(tiny()))}
    assert checks["N"] == ("W-norm-layer", "T-rms-norm") and checks["Linear(4 → 7)"] == ("T-derive-torch",)


@needs_coq
def test_what_coq_says_names_no_folder_of_its_own(compiled):
    verdict = coq.run("Definition odd := nonsense.\n", compiled)
    assert not verdict.accepted and verdict.output.startswith('File "./Certificate.v", line 1')


@needs_coq
def test_a_proof_file_that_coq_rejects_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(coq, "source", lambda name: "Definition odd := nonsense.\n")
    with pytest.raises(RuntimeError, match=r"coqc rejects Operators.v: (.|\n)*nonsense"):
        coq.compile_proofs(tmp_path)


def test_prove_without_coq(tmp_path, monkeypatch):
    monkeypatch.setattr(coq.shutil, "which", lambda name: None)
    status, report = said("--preset", "wojcik", "--out", str(tmp_path / "model.v"))
    assert status == 1 and "Not checked. Coq is needed and was not found" in report and (tmp_path / "model.v").exists()
    with pytest.raises(FileNotFoundError, match="coqc: got nothing, want Coq"):
        coq.check_certificate("")


def test_presets_hold_no_numbers():
    for name in ("gpt2", "mixtral", "encoder-decoder-vaswani"):
        assert all(weights.device == torch.device("meta") for weights in preset_model(name).parameters())
