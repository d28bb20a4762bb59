"""The command `prove`: write a model's certificate, have it checked, say what was proved and what was assumed."""

from pathlib import Path

from torch import nn

from tlm_book.derivation import coq
from tlm_book.derivation.certificate import Assumption, assumptions, certificate
from tlm_book.derivation.rules import derive
from tlm_book.files import new_file

__all__ = ["conclusion", "prove"]


def _line(number: int, leaf: Assumption) -> str:
    places = "1 place" if leaf.places == 1 else f"{leaf.places} places"
    tried = f"tried by {', '.join(leaf.checks)}" if leaf.checks else "not tried by the book"
    return f"  {number}. {leaf.subject}, {places}: {leaf.formula} [{leaf.reason}]; {tried}"


def conclusion(leaves: tuple[Assumption, ...], verdict: coq.Verdict) -> str:
    """What was proved, and under which assumptions: the leaves one by one, each with the statements whose checks try it."""
    if not verdict.accepted:
        return f"Coq rejects the certificate: nothing is proved.\n{verdict.output}"
    foreign = [axiom for axiom in verdict.axioms if axiom not in coq.AXIOMS]
    if foreign:
        return f"The certificate rests on axioms that the book does not allow: {', '.join(foreign)}"
    listed = "\n".join(_line(number, leaf) for number, leaf in enumerate(leaves, start=1))
    return (
        "Proved by Coq, without axioms: every operator that this derivation denotes is autoregressive,\n"
        "in exact arithmetic, whatever the weights.\n"
        f"Assumed of the {len(leaves)} leaves:\n{listed}\n"
        "The checks stand in the book's chapters; tests/unit/test_derivations.py tries all leaves on random models."
    )


def prove(model: nn.Module, out: Path | None = None) -> tuple[str, int]:
    """Write the model's certificate (to `out`, if given, whole or not at all) and have Coq check it; returns a text for the user and a status.

    The status is 0 if Coq has accepted the certificate, and 1 otherwise: if the derivation does not prove the model
    autoregressive (the text then says where the proof stops), if Coq rejects the certificate, or if Coq is not installed.
    """
    proof = derive(model)
    try:
        text = certificate(proof)
    except ValueError as error:
        return f"No theorem. {error}", 1
    said = []
    if out is not None:
        with new_file(out) as part:
            part.write_text(text, encoding="utf-8")
        said.append(f"The certificate: {out}")
    if coq.coqc() is None:
        return "\n".join([*said, f"Not checked. {coq.HOW_TO_GET_COQ}"]), 1
    verdict = coq.check_certificate(text)
    allowed = set(verdict.axioms) <= set(coq.AXIOMS)
    return "\n".join([*said, conclusion(assumptions(proof), verdict)]), int(not (verdict.accepted and allowed))
