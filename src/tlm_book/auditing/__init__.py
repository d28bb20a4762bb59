"""Does this model see the future? `audit` decides by experiment, names the culprit and guesses at the cause.

    from tlm_book.auditing import audit
    print(audit(model, inputs))

Written by hand. To read the code, begin with `cuts` (rows replaced, rows removed), `derivatives`, `noise` and `blame`, which are the
statements of the chapter as code; `inputs`, `trial`, `look` and `state` run any model on any sequence and leave it as it was; `known` saves
work; `experiments` and `run` put everything together.
"""

from tlm_book.auditing.report import Leak, Report
from tlm_book.auditing.run import assert_autoregressive, audit

__all__ = ["Leak", "Report", "audit", "assert_autoregressive"]
