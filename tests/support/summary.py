"""The end of a test run: skips by reason, then one sentence."""

from collections import Counter

SHOWN = 4  # reasons for which tests were skipped that get a line of their own; one line more for all others


def skipped_by_reason(reports) -> list[str]:
    """At most SHOWN + 1 lines: how many tests were skipped, and why."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    lines = [f"skipped {count:4}: {reason}" for reason, count in reasons.most_common(SHOWN)]
    others = reasons.most_common()[SHOWN:]
    if others:
        lines.append(f"skipped {sum(count for _, count in others):4}: other reasons ({'; '.join(reason[:60] for reason, _ in others)})")
    return lines


def outcome(stats: dict[str, list], long: int = 0) -> str:
    """What passed and what could not be tried here, in one sentence."""
    passed = [report.nodeid for report in stats.get("passed", [])]
    cells = [name for name in passed if "ipynb::" in name]
    chapters = {name.split("::")[0] for name in cells}
    words = []
    if cells:
        words.append(f"{len(cells):,} cells of {len(chapters)} notebooks ran and gave their printed outputs")
    if len(passed) > len(cells):
        tests = len(passed) - len(cells)
        words.append(f"{tests:,} test{'s' * (tests != 1)} held")
    wrong = sum(len(stats.get(kind, [])) for kind in ("failed", "error"))
    skipped = len(stats.get("skipped", []))
    sentence = " and ".join(words) or "Nothing passed"
    if wrong:
        sentence += f"; {wrong} did NOT"
    if skipped:
        sentence += f"; {skipped} could not be tried here, for the reasons above"
    if long:
        sentence += f"; {long} long ones were left to make test-all"
    return sentence + "."
