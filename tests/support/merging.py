"""Byte pair merging once more, written for the tests of the merge stepper."""


def merged(tokens, n_merges):
    """The states of byte pair merging, with the counts: an oracle that shares nothing with the picture."""
    states, counts = [list(tokens)], []
    for _ in range(n_merges):
        s = states[-1]
        pairs = [(a, b) for a, b in zip(s, s[1:])]
        if not pairs:
            break
        a, b = max(sorted(set(pairs)), key=pairs.count)
        text, after = list(s), []
        while text:
            after.append(text.pop(0))
            if text and (after[-1], text[0]) == (a, b):
                after[-1] = a + text.pop(0)
        counts.append(pairs.count((a, b)))
        states.append(after)
    return states, counts
