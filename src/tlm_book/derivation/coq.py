"""The proof assistant Coq: the book's two proof files, and what coqc says about a certificate."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import dedent

from tlm_book.checks import expects, expects_one_of

__all__ = [
    "PROOF_FILES", "MACHINE_CHECKED", "AXIOMS", "HOW_TO_GET_COQ", "CLOSED", "Verdict", "coqc", "source", "passage", "compile_proofs",
    "run", "check_certificate",
]  # fmt: skip

PROOF_FILES = ("Operators.v", "Derivation.v")  # in the order in which they depend on each other
MACHINE_CHECKED: dict[str, tuple[str, ...]] = {  # statements of the book, and the lemmas that prove them in these files
    "W-rowwise-def": ("rowwise_forms",),
    "T-two-halves": ("autoregressive_from_first_rows", "two_halves"),
    "T-halves-counterexamples": ("running_sum_over_n_halves", "next_row_halves"),
    "W-rowwise-implies-ar": (
        "rowwise_is_indexed", "indexed_is_autoregressive", "add_index_is_indexed_only", "running_sum_is_autoregressive_only",
    ),
    "T-rowwise-iff": ("rowwise_iff",),
    "W-composition-claim": ("compose_autoregressive",),
    "W-closure-lemmas": ("side_by_side_autoregressive", "identity_rowwise"),
    "T-closure-kinds": ("compose_rowwise", "compose_indexed", "side_by_side_rowwise", "side_by_side_indexed"),
    "T-equivariant-closure": ("compose_equivariant", "side_by_side_equivariant"),
    "W-product-claim": ("product_autoregressive", "triangular_is_not_enough", "leading_blocks_are_not_enough"),
    "T-pattern-lemma": ("masked_softmax_causal",),
    "T-equivariant-pattern": ("open_softmax_equivariant", "product_equivariant", "masked_softmax_is_not_equivariant"),
    "T-derivation-sound": ("soundness", "derived_autoregressive", "denotes_something"),
}  # fmt: skip
AXIOMS: tuple[str, ...] = ()  # on which all this may rest: none
HOW_TO_GET_COQ = "Coq is needed and was not found: apt-get install coq, brew install coq, or https://coq.inria.fr (8.16 or newer)"
CLOSED = "Closed under the global context"  # what Coq prints for a theorem that rests on no axiom


@dataclass(frozen=True)
class Verdict:
    """What coqc says about a file: whether it accepts the file, on which axioms its theorems rest (as far as it asks), and coqc's own words."""

    accepted: bool
    axioms: tuple[str, ...]
    output: str


def coqc() -> str | None:
    """The path of Coq's compiler; None if it is not installed."""
    return shutil.which("coqc")


def source(name: str) -> str:
    """The text of one of the proof files.

    ValueError for another name.
    """
    expects_one_of("name", name, PROOF_FILES)
    return resources.files("tlm_book").joinpath("proofs", name).read_text(encoding="utf-8")


_LEMMA = r"(?:Lemma|Theorem|Corollary) {name}\b"
_DEFINITION = r"(?:Program )?(?:Definition|Fixpoint|Record|Inductive) {name}\b"
_CASE = r"\| {name}\b"  # of an inductive definition


def passage(name: str, proof: bool = False) -> str:
    """The passage of the proof files on this name: a definition, a lemma (with its proof, if wanted), or a line of an inductive definition.

    ValueError if there is no such name.
    """
    lines = [line for file in PROOF_FILES for line in source(file).splitlines()]
    for kind in (_LEMMA, _DEFINITION, _CASE):
        begins = [k for k, line in enumerate(lines) if re.match(kind.format(name=re.escape(name)), line.strip())]
        if begins:
            return dedent("\n".join(_until_the_end(lines[begins[0] :], kind, proof)))
    raise ValueError(f"name: got {name!r}, want one that is defined or proved in {' or '.join(PROOF_FILES)}")


def _until_the_end(lines: list[str], kind: str, proof: bool) -> list[str]:
    """The first of these lines, as far as they belong together."""
    for k, line in enumerate(lines):
        follows = lines[k + 1].strip() if k + 1 < len(lines) else "."
        if kind == _LEMMA and (line.endswith("Qed.") if proof else follows.startswith("Proof")):
            return lines[: k + 1]
        if kind == _DEFINITION and re.search(r"\.(?: \(\*.*\*\))?$", line):
            return lines[: k + 1]
        if kind == _CASE and (follows.startswith("|") or line.endswith(".")):
            return lines[: k + 1]
    return lines


def _compile(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = coqc()
    expects(command is not None, "coqc", "nothing", HOW_TO_GET_COQ, FileNotFoundError)
    return subprocess.run([str(command), "-q", "-Q", str(folder), "TLM", str(file)], cwd=folder, capture_output=True, text=True)


def compile_proofs(folder: Path) -> None:
    """Copy the book's two files into a folder and compile them there.

    FileNotFoundError without coqc; RuntimeError, with Coq's words, if it rejects one of them.
    """
    for name in PROOF_FILES:
        (folder / name).write_text(source(name), encoding="utf-8")
        done = _compile(folder / name, folder)
        if done.returncode:
            raise RuntimeError(f"coqc rejects {name}: {done.stderr}")


def _axioms(printed: str) -> tuple[str, ...]:
    """The names that `Print Assumptions` lists."""
    listed = printed.partition("Axioms:")[2]
    return tuple(re.findall(r"^(\S+)\s*:", listed, re.MULTILINE))


def run(text: str, compiled: Path) -> Verdict:
    """What coqc says about a file that uses the proofs, which `compile_proofs` has compiled in the folder `compiled`.

    FileNotFoundError without coqc.
    """
    with tempfile.TemporaryDirectory() as made:
        file = Path(made, "Certificate.v")
        file.write_text(text, encoding="utf-8")
        done = _compile(file, compiled)
    return Verdict(done.returncode == 0, _axioms(done.stdout), (done.stdout + done.stderr).replace(made, "."))


def check_certificate(text: str) -> Verdict:
    """What coqc says about a certificate. (T-derivation-sound)

    FileNotFoundError without coqc.
    """
    return run(text, Path(_compiled().name))


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """A folder with the two files compiled, once for this process; it is removed when the process ends."""
    made = tempfile.TemporaryDirectory()
    compile_proofs(Path(made.name))
    return made
