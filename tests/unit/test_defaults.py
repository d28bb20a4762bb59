"""The specification, called with its defaults, computes the definition: every exported function that has defaults stands here, against a formula written anew.

The formulas below use plain loops and numbers, nothing of the package (except for `kneser_ney`, where the default order is compared with the
one that it stands for); weights are random, rows short.
"""

import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest

import tlm_book.spec
from tlm_book.encoder_decoder import EncoderDecoderConfig
from tlm_book.spec import attention as s_attention
from tlm_book.spec import decoder_block as s_decoder_block
from tlm_book.spec import encoder_decoder as s_encoder_decoder
from tlm_book.spec import feed_forward as s_feed_forward
from tlm_book.spec import gradients as s_gradients
from tlm_book.spec import graph_networks as s_graph_networks
from tlm_book.spec import heads as s_heads
from tlm_book.spec import inference as s_inference
from tlm_book.spec import linear_attention as s_linear_attention
from tlm_book.spec import loss as s_loss
from tlm_book.spec import multi_head as s_multi_head
from tlm_book.spec import named_tensors as s_named_tensors
from tlm_book.spec import normalization as s_normalization
from tlm_book.spec import optimization as s_optimization
from tlm_book.spec import positional_encoding as s_positional_encoding
from tlm_book.spec import rewards as s_rewards
from tlm_book.spec import training as s_training
from tlm_book.spec import transformer_lm as s_transformer_lm
from tlm_book.spec import word_vectors as s_word_vectors
from tlm_book.training import TrainConfig
from tlm_book.transformer_lm import Config

CHANCE = np.random.default_rng(7)
n, d, k, f, V, h = 4, 6, 3, 5, 7, 2
X, Y = CHANCE.normal(size=(n, d)), CHANCE.normal(size=(n + 1, d))


def weight(*shape: int) -> np.ndarray:
    return CHANCE.normal(size=shape)


# The definitions, literally


def softmax_row(s):
    e = [math.exp(x - max(s)) for x in s]
    return [x / sum(e) for x in e]


def attend(Q, K, V, causal):
    """Row i: the average of V's rows with weights softmax(q_i · k_j / √k), over j ≤ i or over all j."""
    out = []
    for i, q in enumerate(Q):
        seen = i + 1 if causal else len(K)
        p = softmax_row([float(q @ key) / math.sqrt(len(q)) for key in K[:seen]])
        out.append(sum(weight * value for weight, value in zip(p, V[:seen])))
    return np.array(out)


def wojcik_row(x):
    """(x − x̄) / (σ + 10⁻⁶)."""
    mean = sum(x) / len(x)
    return (x - mean) / (math.sqrt(sum((x - mean) ** 2) / len(x)) + 0.000001)


def torch_row(x):
    """(x − x̄) / √(σ² + 10⁻⁵)."""
    mean = sum(x) / len(x)
    return (x - mean) / math.sqrt(sum((x - mean) ** 2) / len(x) + 0.00001)


def norm_rows(row, X, w):
    return np.array([w["a"] * row(x) + w["b"] for x in X])


def relu_layer(X, w):
    H = X @ w["W_1"] + w["b_1"]
    return np.where(H > 0, H, 0) @ w["W_2"] + w["b_2"]


def silu_gated(X, w):
    G = X @ w["W_G"]
    return (G / (1 + np.exp(-G)) * (X @ w["W_1"])) @ w["W_2"]


def heads_of(X, Z, w, causal):
    """Queries from X, keys and values from Z, no biases; the heads side by side times W_O."""
    each = [attend(X @ w["W_Q"][i], Z @ w["W_K"][i], Z @ w["W_V"][i], causal) for i in range(h)]
    return np.concatenate(each, axis=1) @ w["W_O"] + w.get("b_O", 0)


HEADS = {"W_Q": weight(h, d, k), "W_K": weight(h, d, k), "W_V": weight(h, d, k), "W_O": weight(h * k, d)}
BLOCK = {
    "N_ca": {"a": weight(d), "b": weight(d)},
    "CA": HEADS | {"b_O": weight(d)},
    "N_ff": {"a": weight(d), "b": weight(d)},
    "FF": {"W_1": weight(d, f), "b_1": weight(f), "W_2": weight(f, d), "b_2": weight(d)},
}
NORM = {"a": weight(d), "b": weight(d)}
PAIR = {"SA": HEADS, "CA": {name: weight(*w.shape) for name, w in HEADS.items()}, "FF": BLOCK["FF"]}
PAIR |= {name: {"a": weight(d), "b": weight(d)} for name in ("N_sa", "N_ca", "N_ff")}
TOKENS = np.array([3, 1, 3, 6])


def wojcik_block(X):
    X = X + heads_of(Z := norm_rows(wojcik_row, X, BLOCK["N_ca"]), Z, BLOCK["CA"], True)
    return X + relu_layer(norm_rows(wojcik_row, X, BLOCK["N_ff"]), BLOCK["FF"])


def mao_encoder(X):
    X = norm_rows(torch_row, X + heads_of(X, X, PAIR["SA"], False), PAIR["N_sa"])
    return norm_rows(torch_row, X + relu_layer(X, PAIR["FF"]), PAIR["N_ff"])


def mao_decoder(Y, memory):
    Y = norm_rows(torch_row, Y + heads_of(Y, Y, PAIR["SA"], True), PAIR["N_sa"])
    Y = norm_rows(torch_row, Y + heads_of(Y, memory, PAIR["CA"], False), PAIR["N_ca"])
    return norm_rows(torch_row, Y + relu_layer(Y, PAIR["FF"]), PAIR["N_ff"])


# One line or two for every function


def of_attention():
    Q, K, W = weight(n, k), weight(n, k), weight(n, 2)
    yield "attention", s_attention.attention(Q, K, W), attend(Q, K, W, True)
    yield "attention_pattern", s_attention.attention_pattern(Q, K), attend(Q, K, np.eye(n), True)
    W_Q, W_K, W_V = weight(d, k), weight(d, k), weight(d, 2)
    yield "causal_attention", s_attention.causal_attention(X, W_Q, W_K, W_V), attend(X @ W_Q, X @ W_K, X @ W_V, True)


def of_multi_head():
    three = (HEADS["W_Q"], HEADS["W_K"], HEADS["W_V"])
    each = [attend(X @ HEADS["W_Q"][i], X @ HEADS["W_K"][i], X @ HEADS["W_V"][i], True) for i in range(h)]
    yield "heads", np.array(s_multi_head.heads(X, *three)), np.array(each)
    yield "multi_head", s_multi_head.multi_head(X, **BLOCK["CA"]), heads_of(X, X, BLOCK["CA"], True)
    gain = weight(d)
    yield "unit_rows", s_multi_head.unit_rows(X, gain), np.array([gain * x / math.sqrt(sum(x**2) / len(x) + 0.000001) for x in X])
    yield "multi_head_attention", s_multi_head.multi_head_attention(Y, X, X, **HEADS), heads_of(Y, X, HEADS, False)


def of_normalization():
    a, b = NORM["a"], NORM["b"]
    x = X[0]
    yield "standardize", s_normalization.standardize(x), wojcik_row(x)
    yield "normalize", s_normalization.normalize(x, a, b), a * wojcik_row(x) + b
    yield "layer_norm", s_normalization.layer_norm(X, a, b), norm_rows(wojcik_row, X, NORM)
    yield "standardize_over", s_normalization.standardize_over(X, (0,)), np.array([wojcik_row(column) for column in X.T]).T
    yield "rms_norm", s_normalization.rms_norm(X, a), np.array([a * x / math.sqrt(sum(x**2) / len(x) + 0.000001) for x in X])
    box = weight(2, 3, 4)
    gamma, beta = weight(3), weight(3)
    alone = [[gamma[c] * wojcik_row(box[b, c]) + beta[c] for c in range(3)] for b in range(2)]
    yield "normalize_over", s_normalization.normalize_over(box, gamma, beta, "instance"), np.array(alone)


def of_feed_forward():
    yield "feed_forward", s_feed_forward.feed_forward(X, **BLOCK["FF"]), relu_layer(X, BLOCK["FF"])
    gated = [{"W_G": weight(d, f), "W_1": weight(d, f), "W_2": weight(f, d)} for _ in range(3)]
    yield "gated_feed_forward", s_feed_forward.gated_feed_forward(X, **gated[0]), silu_gated(X, gated[0])
    R = X @ (W_R := weight(d, 3))
    one = [silu_gated(x[None], gated[r.argmax()])[0] for x, r in zip(X, R)]
    yield "mixture_of_experts", s_feed_forward.mixture_of_experts(X, W_R, gated, 1), np.array(one)
    f_e = np.bincount(R.argmax(axis=1), minlength=3) / n
    P_e = (np.exp(R) / np.exp(R).sum(axis=1, keepdims=True)).mean(axis=0)
    yield "load_balancing_loss", np.array(s_feed_forward.load_balancing_loss(R)), np.array(3 * f_e @ P_e)


def of_decoder_block():
    yield "decoder_block", s_decoder_block.decoder_block(X, BLOCK), wojcik_block(X)


def of_transformer_lm():
    E, P, U, u = weight(V, d), weight(5, d), weight(d, V), weight(V)
    rows = np.array([E[t] + P[i] for i, t in enumerate(TOKENS)])
    want = norm_rows(wojcik_row, wojcik_block(rows), NORM) @ U + u
    yield "transformer_lm", s_transformer_lm.transformer_lm(TOKENS, E, P, [BLOCK], NORM, U, u), want


def of_encoder_decoder():
    yield "encoder_block", s_encoder_decoder.encoder_block(X, PAIR), mao_encoder(X)
    yield "cross_block", s_encoder_decoder.cross_block(Y, X, PAIR), mao_decoder(Y, X)
    E_s, E_t, P, U, u = weight(V, d), weight(V, d), weight(5, d), weight(d, V), weight(V)
    w = {"E_s": E_s, "E_t": E_t, "P": P, "encoder": [PAIR], "decoder": [PAIR], "U": U, "u": u, "N_encoder": None, "N_decoder": NORM}
    target = np.array([0, 5, 2])
    memory = mao_encoder(np.array([math.sqrt(6) * E_s[t] + P[i] for i, t in enumerate(TOKENS)]))
    Z = mao_decoder(np.array([math.sqrt(6) * E_t[t] + P[i] for i, t in enumerate(target)]), memory)
    yield "encoder_decoder", s_encoder_decoder.encoder_decoder(TOKENS, target, w), norm_rows(torch_row, Z, NORM) @ U + u


def of_loss():
    yield "shift", s_loss.shift(TOKENS), np.array([0, 3, 1, 3])
    Z = weight(n, V)
    log_p = [Z[i, t] - math.log(sum(math.exp(z) for z in Z[i])) for i, t in enumerate(TOKENS)]
    read = []

    def model(tokens):
        read.append(tokens.tolist())
        return Z

    yield "sequence_log_probs", s_loss.sequence_log_probs(model, TOKENS), np.array(log_p)
    yield "sequence_loss", s_loss.sequence_loss(model, TOKENS), -sum(log_p) / n
    yield "the model read", np.array(read), np.array([[0, 3, 1, 3]] * 2)


def of_positional_encoding():
    want = [[math.sin(1), math.cos(1), math.sin(1 / 100), math.cos(1 / 100)], [math.sin(2), math.cos(2), math.sin(2 / 100), math.cos(2 / 100)]]
    yield "sinusoid", s_positional_encoding.sinusoid(2, 4), np.array(want)
    yield "offset_map", s_positional_encoding.offset_map(1, 4) @ np.array(want[0]), np.array(want[1])
    yield "rope_frequencies", s_positional_encoding.rope_frequencies(4), np.array([1.0, 1 / 100])
    rows, turned = np.random.default_rng(0).normal(size=(3, 4)), np.empty((3, 4))
    for p, (a, b, c, e) in enumerate(rows):  # the pairs are (a, c) and (b, e)
        (fast, slow) = ((math.cos(p), math.sin(p)), (math.cos(p / 100), math.sin(p / 100)))
        turned[p] = (a * fast[0] - c * fast[1], b * slow[0] - e * slow[1], a * fast[1] + c * fast[0], b * slow[1] + e * slow[0])
    yield "rotary", s_positional_encoding.rotary(rows), turned


def of_inference():
    table = weight(V, V)

    def model(tokens):
        return table[tokens]

    def softmax(z):
        return np.array(softmax_row(list(z)))

    yield "next_distribution", s_inference.next_distribution(model, TOKENS), softmax(table[6])
    first = int(np.argmax(table[6]))
    yield "greedy", s_inference.greedy(model, TOKENS, 2)[-2:], np.array([first, int(np.argmax(table[first]))])
    reached = next(t for t in range(V) if softmax(table[6])[: t + 1].sum() >= 0.4)
    yield "sample", s_inference.sample(model, TOKENS, [0.4])[-1], reached
    yield "chosen", s_inference.chosen(table[2], TOKENS), softmax(table[2])
    pairs = {(a, b): math.log(softmax(table[6])[a]) + math.log(softmax(table[a])[b]) for a in range(V) for b in range(V)}
    best = max(pairs, key=pairs.get)
    found = s_inference.beam_search(model, TOKENS, 2, V)[0]
    yield "beam_search", np.array([*found.tokens, found.value]), np.array([*best, pairs[best]])


def of_gradients():
    x, a, dY = X[0], NORM["a"], weight(n, d)

    def slope(function, at):
        """Central differences, entry by entry."""
        out = []
        for i in np.ndindex(at.shape):
            e = np.zeros_like(at)
            e[i] = 1e-6
            out.append((function(at + e) - function(at - e)) / 2e-6)
        return np.moveaxis(np.array(out).reshape(*at.shape, *np.shape(out[0])), range(at.ndim), range(-at.ndim, 0))

    yield "standardize_jacobian", s_gradients.standardize_jacobian(x), slope(wojcik_row, x)
    want = slope(lambda X: float((norm_rows(wojcik_row, X, NORM) * dY).sum()), X)
    yield "layer_norm_backward", s_gradients.layer_norm_backward(dY, X, a)[0], want
    yield "activation_derivative", s_gradients.activation_derivative(np.array([-2.0, 3.0])), np.array([0.0, 1.0])
    want = slope(lambda X: float((relu_layer(X, BLOCK["FF"]) * dY).sum()), X)
    yield "feed_forward_backward", s_gradients.feed_forward_backward(dY, X, **BLOCK["FF"])[0], want
    Q, K, W, dO = weight(n, k), weight(n, k), weight(n, 2), weight(n, 2)
    want = slope(lambda K: float((attend(Q, K, W, True) * dO).sum()), K)
    yield "attention_backward", s_gradients.attention_backward(dO, Q, K, W)[1], want
    want = slope(lambda X: float((heads_of(X, X, BLOCK["CA"], True) * dY).sum()), X)
    yield "multi_head_backward", s_gradients.multi_head_backward(dY, X, **BLOCK["CA"])[0], want
    want = slope(lambda X: float((wojcik_block(X) * dY).sum()), X)
    yield "block_backward", s_gradients.block_backward(dY, X, BLOCK)[0], want


def of_graph_networks():
    weights, biases = [weight(3, 4), weight(4, 2)], [weight(4), weight(2)]
    x = weight(3)
    hidden = x @ weights[0] + biases[0]
    want = np.where(hidden > 0, hidden, 0) @ weights[1] + biases[1]
    yield "mlp", s_graph_networks.mlp(x, weights, biases), want
    network = s_graph_networks.layered_network(weights, biases)
    yield "layered_network", s_graph_networks.network_function(network, x), want
    more = s_graph_networks.without_biases(weights, biases)
    yield "without_biases", s_graph_networks.mlp(np.append(x, 1.0), more, [np.zeros(w.shape[1]) for w in more])[:2], want


def of_heads():
    A = np.arange(16.0).reshape(4, 4)
    yield "duplicate_token_score", s_heads.duplicate_token_score(A, TOKENS), A[2, 0]


def of_named_tensors():
    def named(array, *axes):
        return s_named_tensors.named(array, *axes)

    T = named(X, "seq", "chans")
    W_1, b_1, W_2, b_2 = (named(BLOCK["FF"][name], *axes) for name, axes in zip(("W_1", "b_1", "W_2", "b_2"), (("chans", "hidden"), ("hidden",), ("hidden", "chans"), ("chans",))))
    yield "ffn", s_named_tensors.to_array(s_named_tensors.ffn(T, W_1, b_1, W_2, b_2), "seq", "chans"), relu_layer(X, BLOCK["FF"])
    by_rows = s_named_tensors.to_array(s_named_tensors.standardize(T, "chans"), "seq", "chans")
    yield "standardize", by_rows, np.array([torch_row(x) for x in X])
    a, b = (named(NORM[name], "chans") for name in "ab")
    yield "normalize", s_named_tensors.to_array(s_named_tensors.normalize(T, a, b, "chans"), "seq", "chans"), norm_rows(torch_row, X, NORM)
    Q, K, W = weight(3, k), weight(n, k), weight(n, 2)
    found = s_named_tensors.attention(named(Q, "seq'", "key"), named(K, "seq", "key"), named(W, "seq", "val"))
    yield "attention", s_named_tensors.to_array(found, "seq'", "val"), attend(Q, K, W, False)
    W_Q, W_K, W_V, b_Q, b_K, b_V = weight(d, k), weight(d, k), weight(d, d), weight(k), weight(k), weight(d)
    named_weights = {"W_Q": named(W_Q, "chans", "key"), "W_K": named(W_K, "chans", "key"), "W_V": named(W_V, "chans", "val")}
    named_weights |= {"b_Q": named(b_Q, "key"), "b_K": named(b_K, "key"), "b_V": named(b_V, "val")}

    def self_attention(X):
        return attend(X @ W_Q + b_Q, X @ W_K + b_K, X @ W_V + b_V, False)

    found = s_named_tensors.self_attention(T, named_weights)
    yield "self_attention", s_named_tensors.to_array(found, "seq", "val"), self_attention(X)
    block = named_weights | {"gamma_1": a, "beta_1": b, "gamma_2": a, "beta_2": b, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}
    X_2 = X + self_attention(norm_rows(torch_row, X, NORM))
    want = X_2 + relu_layer(norm_rows(torch_row, X_2, NORM), BLOCK["FF"])
    yield "block", s_named_tensors.to_array(s_named_tensors.block(T, block), "seq", "chans"), want


def of_optimization():
    w, g = np.array([1.0, 2.0]), np.array([0.5, 0.0])
    moved = 0.1 * 0.5 / (0.5 + 0.00000001)
    yield "adam", s_optimization.adam(w, g, 0 * w, 0 * w, 1, 0.1, (0.9, 0.99))[0], np.array([1.0 - moved, 2.0])
    yield "amsgrad", s_optimization.amsgrad(w, g, 0 * w, 0 * w, 0 * w, 1, 0.1, (0.9, 0.99))[0], np.array([1.0 - moved, 2.0])
    step = s_optimization.adamw(w, g, 0 * w, 0 * w, 1, 0.1, (0.9, 0.99), 0.2)[0]
    yield "adamw", step, np.array([(1 - 0.02) * 1.0 - moved, (1 - 0.02) * 2.0])
    yield "scheduled_rate", s_optimization.scheduled_rate(90, 101, 1, 1.0, 0.0, "stable"), 0.5
    sigma = np.array([0.8, 0.6])
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.7750 * sigma**3 + 2.0315 * sigma**5
    yield "newton_schulz", s_optimization.newton_schulz(np.diag([4.0, 3.0])), np.diag(sigma)


def of_training():
    text = np.array([0, 1, 0, 1, 2])
    yield "kneser_ney", s_training.kneser_ney(text, 3, (0,)), s_training.kneser_ney(text, 3, (0,), order=2)


def of_rewards():
    q, g = np.array([0.25, 0.75]), np.array([[2.0, 0.0], [0.0, 4.0]])
    yield "policy_gradient", s_rewards.policy_gradient(q, g, np.array([1.0, 3.0])), np.array([0.5, 9.0])  # b = 0
    yield "question_weight", s_rewards.question_weight(0.25, 3), 1.0  # the mean of the others


def states(Q, K, V, alpha, beta):
    """The delta rule, entry by entry."""
    S, out = [[0.0] * V.shape[1] for _ in K[0]], []
    for q, key, v, a, b in zip(Q, K, V, alpha, beta):
        u = [b * (v[c] - sum(key[r] * a * S[r][c] for r in range(len(key)))) for c in range(len(v))]
        S = [[a * S[r][c] + key[r] * u[c] for c in range(len(v))] for r in range(len(key))]
        out.append([sum(q[r] * S[r][c] for r in range(len(key))) for c in range(len(v))])
    return np.array(out)


def of_linear_attention():
    Q, K, V = weight(n, k), weight(n, k), weight(n, 2)
    alpha, beta = CHANCE.uniform(size=n), CHANCE.uniform(0, 2, size=n)
    expected = states(Q, K, V, alpha, beta)
    yield "state_step", s_linear_attention.state_step(np.zeros((k, 2)), Q[0], K[0], V[0], 0.5, 0.7)[1], states(Q[:1], K[:1], V[:1], [0.5], [0.7])[0]
    yield "linear_attention", s_linear_attention.linear_attention(Q, K, V, alpha, beta), expected
    yield "with_matrices", s_linear_attention.with_matrices(Q, K, V, alpha, beta), expected
    W_Q, W_K, W_V, W_a, W_b, b_a, b_b = weight(h, d, k), weight(h, d, k), weight(h, d, 2), weight(d, h), weight(d, h), weight(h), weight(h)
    gain, W_O = weight(2), weight(2 * h, d)
    sigma = lambda z: 1 / (1 + math.exp(-z))
    heads = []
    for i in range(h):
        q, key = ([row / math.sqrt(row @ row) for row in X @ W[i]] for W in (W_Q, W_K))
        a, b = ([sigma(x @ W[:, i] + c[i]) for x in X] for W, c in ((W_a, b_a), (W_b, b_b)))
        y = states(q, np.array(key), X @ W_V[i], a, b)
        heads.append([row / math.sqrt(row @ row / 2 + 1e-6) * gain for row in y])
    whole = np.concatenate(heads, 1) @ W_O
    yield "linear_attention_layer", s_linear_attention.linear_attention_layer(X, W_Q, W_K, W_V, W_a, b_a, W_b, b_b, gain, W_O), whole


def of_word_vectors():
    yield "noise_distribution", s_word_vectors.noise_distribution(np.array([1.0, 16.0])), np.array([1 / 9, 8 / 9])


OF_CHECKS = {  # defaults that belong to a comparison or to a difference quotient, not to a definition
    "operators": {"agree", "is_rowwise", "is_autoregressive", "is_indexed_rowwise", "is_equivariant", "is_causal_pattern"},
    "named_tensors": {"same", "lift"},  # lift: `inside` empty says that nothing is kept
    "gradients": {"central_difference"},
}
CHAPTERS = [module.name for module in pkgutil.iter_modules(tlm_book.spec.__path__)]


def with_defaults(chapter: str) -> set[str]:
    module = importlib.import_module(f"tlm_book.spec.{chapter}")
    functions = {name: getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    own = {name: function for name, function in functions.items() if function.__module__ == module.__name__}
    return {name for name, function in own.items() if any(p.default is not p.empty for p in inspect.signature(function).parameters.values())}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_defaults_compute_the_definition(chapter):
    cases = [*globals().get(f"of_{chapter}", tuple)()]
    missing = with_defaults(chapter) - {name for name, _, _ in cases} - OF_CHECKS.get(chapter, set())
    assert not missing, f"{missing} of spec.{chapter} have defaults and stand in no case"
    for name, found, want in cases:
        np.testing.assert_allclose(found, want, rtol=1e-6 if chapter == "gradients" else 1e-11, atol=1e-8 if chapter == "gradients" else 1e-12, err_msg=name)


def test_numbers_inside_a_pair_become_pythons_own():
    assert [type(beta) for beta in TrainConfig(betas=(np.float64(0.5), np.float64(0.25))).betas] == [float, float]


def test_help_shows_the_settings_with_their_defaults():
    for kind, first in ((TrainConfig, "(steps: int = 1000, "), (Config, "(vocab_size: int, d_model: int = 512, "), (EncoderDecoderConfig, "(vocab_size: int, d_model: int = 512, ")):
        assert str(inspect.signature(kind)).startswith(first)
