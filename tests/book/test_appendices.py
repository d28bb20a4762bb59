"""The appendices are complete: every error has its entry, every word of the glossary its object, every author named is in the bibliography."""

import functools
import importlib.util
import re
import sys

import chapters as book
import pytest
from test_statements import CATALOGUE, checks, stated

SOURCES = {"W": "Wojcik", "L": "Lelarge", "B": "Becker-Kahn", "A": "Agarwal", "M": "Lei Mao"}
ENTRY = re.compile(r"^### (.+)\n\n\[([A-Z]-[\w.\-]+)\]\((\w+)\.ipynb#([\w.\-]+)\) · (.+) · (.+)\n\n(\*\*Printed:\*\* .+ \*\*Right:\*\* .+)", re.M)
LINK = re.compile(r"\]\((\w+)\.ipynb(?:#([\w.\-]+))?\)")
TERM = re.compile(r'^<a id="(term-[\w-]+)"></a>\*\*([^*]+)\*\*( \([^)]*\))?\. (.+)$', re.M)


@functools.cache
def markdown(name):
    return "\n\n".join(cell.source for cell in book.read(name).cells if cell.cell_type == "markdown")


def page(name):
    return (book.BOOK / f"{name}.md").read_text(encoding="utf-8")


@functools.cache
def homes():
    return {id_: name for name in book.chapters() for id_ in re.findall(r'<a id="([\w.\-]+)"></a>', markdown(name))}


def test_every_error_has_one_entry():
    """Each false or ill-typed statement: one entry with its source, its verdict and a link to its home, and one cell."""
    wrong = {id_: row["verdict"] for id_, row in CATALOGUE.items() if row["verdict"] in ("false", "ill-typed")}
    entries = ENTRY.findall(markdown("errata"))
    assert sorted(entry[1] for entry in entries) == sorted(wrong)
    assert len(entries) == markdown("errata").count("\n### ") and len(wrong) == 35
    home = homes()
    for _, id_, chapter, place, source, verdict, _ in entries:
        assert (chapter, place, source, verdict) == (home[id_], id_, SOURCES[id_[0]], wrong[id_])
    cells = checks(["errata"])
    assert sorted(cells) == sorted(wrong) and all(len(found) == 1 for found in cells.values())


def test_a_counterexample_follows_its_entry():
    cells = book.read("errata").cells
    for entry, cell in zip(cells, cells[1:]):
        for _, id_, *_ in ENTRY.findall(entry.source):
            assert book.directives(cell.source)["checks"] == id_


def test_appendices_state_nothing():
    """Statements are numbered by chapter; the appendix has no number."""
    assert not [id_ for name in book.appendices() for id_ in re.findall(r'<a id="([A-Z]-[\w.\-]+)"></a>', markdown(name))]


DECLARED = re.compile(  # at the beginning of a formula: $E,C\\in\\mathbb R^{V\\times d}
    r"(?<=\$)([A-Z](?:_[12])?(?:\s*,\s*[A-Z](?:_[12])?)*)\s*\\in\s*\\mathbb\s*\{?R\}?\s*\^\s*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\w)"
)
LETTERS = re.compile(r"^\| (\$[A-Z](?:_[12])?\$(?:, \$[A-Z](?:_[12])?\$)*) \| [^|]+ \| ([^|]*)\| ([^|]*)\|$", re.M)
FORMULA = re.compile(r"\$([^$]+)\$")


def plain_shape(formula):
    return re.sub(r"\\(?:mathrm|text)|[{}\s\\,]", "", formula.replace("\\times", "×"))


def shapes_of_letters():
    """{letter: {chapter or "": shapes}} from the table of notation; no letter stands there twice."""
    found = {}
    for letters, shapes, others in LETTERS.findall(markdown("notation")):
        for letter in FORMULA.findall(letters):
            assert letter not in found, f"{letter} stands in the table twice"
            found[letter] = {"": {*map(plain_shape, FORMULA.findall(shapes))}}
            for chapter, said in re.findall(r"`(\w+)`: ([^;]*)", others):
                found[letter][chapter] = {*map(plain_shape, FORMULA.findall(said))}
    return found


def test_a_letter_has_one_shape_in_the_whole_book():
    """Or the table of notation names the chapter in which it has another; named tensors have axes, not shapes."""
    known = shapes_of_letters()
    assert len(known) > 15
    odd = [
        f"{chapter}: {letter} is {plain_shape(shape)}"
        for chapter in set(book.chapters()) - set(book.appendices()) - {"named_tensors"}
        for letters, shape in DECLARED.findall(markdown(chapter))
        for letter in set(re.split(r"\s*,\s*", letters)) & set(known)
        if plain_shape(shape) not in known[letter][""] | known[letter].get(chapter, set())
    ]
    assert not odd, odd


DISPLAYED = re.compile(r"\$\$(.+?)\$\$", re.S)
LAYERS = re.compile(r"(?<![A-Za-z\\])(?:CA|CE|DB|FF|LM|PE|QK|OV|ca|enc|ff|par|post|pos)(?![A-Za-z])")  # of layers and places, not products
IN_WORDS = re.compile(r"\\(?:text|mathrm|mathbb|mathbf|mathsf|operatorname|begin|end|unicode)\*?(?:\s*\{[^{}]*\}|\s+\w)")
COMMANDS = re.compile(r"\\mathcal\s*\{?(\w)\}?|\\([A-Za-z]+)|([A-Za-z])")
GREEK = """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi pi rho sigma tau phi varphi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell""".split()
OTHERS = re.compile(r"^\| (\$[^|]+\$(?:, \$[^|]+\$)*) \| ([^|]*) \| ([^|]*)\|$", re.M)


def letters_of(formula):
    """The letters of a formula, each once; names and commands have none."""
    found = COMMANDS.findall(LAYERS.sub(" ", IN_WORDS.sub(" ", formula)))
    return {rf"\mathcal {script}" if script else rf"\{greek}" if greek else letter for script, greek, letter in found if not greek or greek in GREEK}


def other_letters():
    """{letter: (what it stands for, {chapter: what it stands for there})} from the table of all other letters; none stands there twice."""
    found = {}
    table = markdown("notation").partition("| letter | stands for | in single chapters |")[2].partition("\n\n")[0]
    for letters, meaning, others in OTHERS.findall(table):
        chapters = {}
        for names, said in re.findall(r"((?:`\w+`(?:, )?)+): ([^;]*)", others):
            chapters |= dict.fromkeys(re.findall(r"`(\w+)`", names), said)
        for letter in FORMULA.findall(letters):
            assert letter not in found, f"{letter} stands in the table twice"
            found[letter] = (meaning, chapters)
    return found


@functools.cache
def letters_used(chapter, displayed):
    formulas = (DISPLAYED if displayed else re.compile(r"\$\$?(.+?)\$?\$", re.S)).findall(markdown(chapter).replace("\n>", "\n"))
    return set().union(*map(letters_of, formulas))


def test_every_letter_of_a_displayed_formula_is_listed_once():
    """In one of the two tables of notation; a letter without a meaning of its own, with every chapter that displays it."""
    matrices, others = shapes_of_letters(), other_letters()
    assert len(others) > 50 and not set(matrices) & set(others)
    chapters = [name for name in book.chapters() if name not in book.appendices() and name != "named_tensors"]
    for chapter in chapters:
        for letter in letters_used(chapter, displayed=True) - set(matrices):
            assert letter in others, f"{chapter}: notation does not list {letter}"
            meaning, special = others[letter]
            assert meaning != "–" or chapter in special, f"{chapter}: notation does not say what {letter} is there"


def test_an_unlisted_letter_is_noticed():
    formula = r"\mathrm{PE}(X)=\frac{df}{\eta}\mathcal L,\quad\mathbb R^{FF},\ \mathrm R_p"
    assert letters_of(formula) == {"X", "d", "f", r"\eta", r"\mathcal L", "p"}
    assert letters_of(r"\vartheta+\xi") & set(other_letters()) == set()


def test_a_letter_is_used_where_notation_says():
    """What is said of a letter in a chapter is said of a letter that is there."""
    for letter, (_, special) in other_letters().items():
        for chapter in special:
            assert letter in letters_used(chapter, displayed=False), f"notation speaks of {letter} in {chapter}, which does not use it"


def test_the_glossary_names_objects():
    entries = TERM.findall(page("glossary"))
    assert len(entries) >= 60 and page("glossary").count('<a id="') == len(entries)
    names = [name for _, name, *_ in entries]
    assert names == sorted(names, key=lambda name: re.sub("[^a-z]", "", name.lower()))
    home = homes()
    for _, name, _, text in entries:
        links = LINK.findall(text)
        assert name == "Dropout" or links, f"{name}: no link to a definition"
        assert all(place in home and home[place] == chapter for chapter, place in links if place), name


def test_the_words_of_the_glossary_are_used():
    """Nearly all: an entry that no chapter uses is a word too many."""
    sys.path.insert(0, str(book.ROOT / "site"))
    from tlm.glossary import pattern_of

    text = "\n".join(markdown(name) for name in book.chapters())
    unused = []
    for _, name, forms, _ in TERM.findall(page("glossary")):
        if not pattern_of([name, *re.findall(r"\*([^*]+)\*", forms)]).search(text):
            unused.append(name)
    assert len(unused) <= 6, unused


# Theorems and persons that are no citation; the bibliography has a section on theorems that are called by a name.
NO_CITATION = {"Colab", "Qwen", "English", "French", "Python", "Hugging", "Face", "Mary", "John"}
NAMES = r"[A-Z][a-zé]+(?:-[A-Z][a-z]+)?"
CITED = re.compile(rf"\b({NAMES}) (?:and others|et al\.)|\b({NAMES})(?:, ({NAMES}))? and ({NAMES})\b")
MODELS = ["GPT-2", "GPT-3", "BERT", "Marian", "Trax", "word2vec", "Llama 2", "Transformer-XL", "WordPiece", "AdamW", "GELU", "Rademacher", "Takagi"]


def unresolved(text, bibliography):
    """Names cited in the text that the bibliography lacks."""
    plain = re.sub(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|^#+ .*$", " ", text, flags=re.M)
    names = {name for found in CITED.findall(plain) for name in found if name} | {name for name in MODELS if name in plain}
    return {name for name in names if not re.search(rf"\b{re.escape(name)}\b", bibliography)} - NO_CITATION


@pytest.mark.parametrize("name", book.chapters())
def test_citations_resolve(name):
    sentence_starts = r"(?<=[.:;!?*|>\-\n] )(?:Rows|Keys|Queries|Values|Tokens|Weights|Words|Text|Loss)\b"
    assert unresolved(re.sub(sentence_starts, "", markdown(name)), page("bibliography")) == set()


def test_a_missing_citation_is_noticed():
    assert unresolved("the idea of Nobody and others (2031), after Loshchilov and Hutter", page("bibliography")) == {"Nobody"}


def test_every_entry_of_the_bibliography_says_what_it_contributed():
    literature = page("bibliography").partition("## Attention and transformers")[2].partition("## Programs")[0]
    entries = [line for line in literature.splitlines() if line.startswith("**")]
    assert len(entries) >= 40
    for line in entries:
        assert re.match(r"\*\*[^*]+\*\* \((?:19|20)\d\d\)\. \*[^*]+\*", line), line
        number = re.search(r"arXiv:(\d{4}\.\d{5}|\d{4}\.\d{4})\]\(https://arxiv\.org/abs/([\d.]+)\)", line)
        assert ("arXiv" in line) == bool(number) and (not number or number[1] == number[2]), line
        assert len(line.split("* ", 2)[-1]) > 15, line


def test_names_were_looked_up_in_the_other_libraries():
    """The cells of `notation` that compare with transformers do nothing where it is missing; here it must not be."""
    assert importlib.util.find_spec("transformers")
    source = "\n".join(cell.source for cell in book.read("notation").cells if cell.cell_type == "code")
    assert source.count('find_spec("transformers")') == 3 and "GPT2LMHeadModel" in source and "MarianMTModel" in source


def test_own_statements_are_many():
    assert sum(id_.startswith("T-") for id_ in stated()) > 150
