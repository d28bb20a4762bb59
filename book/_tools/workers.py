"""How tests are shared out: what takes longest comes first, and the whole book is run by two workers.

`pytest --nbval book/`, as typed, starts two workers with one thread each where there are two cores, as `make test` does. Nothing is changed
for a single notebook, with an option that sets the number of workers (-n 0 for none), or with --pdb.
"""

import os
from typing import Any

# No worker is to be left alone with one of these at the end.
FIRST = (
    "book/training", "tests/book/test_mutations", "book/translation", "book/loss", "book/overview", "book/word_vectors", "book/derivations",
    "tests/browser/test_site", "tests/unit/test_resume", "tests/unit/test_auditing", "tests/browser", "tests/book/test_style", "book/rewards", "book/linear_attention", "book/inference",
    "tests/unit/test_scaling", "tests/unit/test_training",
)  # fmt: skip


def place(item: Any) -> int:
    """A key to sort tests by: the number of its beginning in FIRST."""
    return next((number for number, begin in enumerate(FIRST) if item.nodeid.startswith(begin)), len(FIRST))


def share_out(config: Any, folder: os.PathLike[str]) -> None:
    """Two workers, if the whole folder is asked for and nothing is said about workers."""
    option = config.option
    whole = any(os.path.realpath(config.invocation_params.dir / given) == os.path.realpath(folder) for given in config.args)
    said = getattr(option, "numprocesses", 0) is not None or option.tx or option.usepdb or option.collectonly
    if whole and not said and not hasattr(config, "workerinput") and (os.cpu_count() or 1) > 1:
        option.numprocesses, option.dist, option.loadscopereorder = 2, "loadscope", False
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers whose torch uses both cores would wait for one another
