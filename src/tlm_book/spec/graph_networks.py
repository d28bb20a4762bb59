"""Networks on graphs. Generated from book/graph_networks.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_shape, shaped
from tlm_book.libraries import library
from tlm_book.spec.feed_forward import relu
from tlm_book.spec.positional_encoding import append_positions

try:
    import networkx as nx
except ModuleNotFoundError:
    library("networkx", "book")  # says how to get it
    raise

__all__ = [
    "vertex_sets",
    "Network",
    "preactivations",
    "network_function",
    "mlp",
    "layered_network",
    "without_biases",
    "joint_positions",
    "summed_positions",
]


# --- A network on a graph


def vertex_sets(
    graph: nx.DiGraph,
) -> tuple[set[Hashable], set[Hashable], set[Hashable]]:
    """(I, H, O): the vertices without incoming edges, the rest, and those without
    outgoing edges. (B-dag)

    TypeError for anything but a directed graph without parallel edges; ValueError for
    an empty graph, a cycle or an isolated vertex.

    >>> vertex_sets(nx.DiGraph([("x", "h"), ("h", "y")]))
    ({'x'}, {'h'}, {'y'})
    """
    came = type(graph).__name__
    fits = isinstance(graph, nx.DiGraph) and not graph.is_multigraph()
    expects(fits, "graph", came, "a networkx.DiGraph", TypeError)
    expects(len(graph) > 0, "graph", "no vertex", "at least one edge")
    acyclic = nx.is_directed_acyclic_graph(graph)
    expects(acyclic, "graph", "a cycle", "no path that returns")
    alone = sorted(map(repr, nx.isolates(graph)))
    expects(
        not alone, "graph", f"isolated {', '.join(alone)}", "every vertex on an edge"
    )
    inputs = {v for v in graph if graph.in_degree(v) == 0}
    outputs = {v for v in graph if graph.out_degree(v) == 0}
    return inputs, set(graph) - inputs - outputs, outputs


def _real(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


@dataclass(frozen=True)
class Network:
    """A feed-forward network on a directed acyclic graph. (B-ann-def)

    graph        an edge has its weight "w", a vertex other than an input its bias "b"
    inputs       the vertices without incoming edges, in the order of x_0, x_1, …
    outputs      the vertices without outgoing edges, in their order
    activations  {vertex: function of one number}, for exactly the hidden vertices

    The network keeps a copy of the graph to which nothing can be added. ValueError if
    the graph has a cycle or an isolated vertex, if a weight or bias is missing or not a
    finite real number, or if inputs, outputs or activations name other vertices;
    TypeError for another graph than a DiGraph, or an activation that is not a function.
    """

    graph: nx.DiGraph
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]
    activations: Mapping[Hashable, Callable[[float], float]]

    def __post_init__(self) -> None:
        names = ("inputs", "activations", "outputs")
        for name, vertices in zip(names, vertex_sets(self.graph)):
            got = tuple(getattr(self, name))
            same = len(got) == len(vertices) and set(got) == vertices
            wanted = f"the vertices {sorted(map(str, vertices))}, each once"
            expects(same, name, got, wanted)
        for u, v, w in self.graph.edges(data="w"):
            wanted = 'a finite number "w" on each edge'
            expects(_real(w), "graph", f"weight {w!r} on {(u, v)}", wanted)
        for v in set(self.graph) - set(self.inputs):
            b, wanted = self.graph.nodes[v].get("b"), 'a finite number "b" on each vertex'
            expects(_real(b), "graph", f"bias {b!r} on {v!r}", wanted + " but the inputs")
        for v, f in self.activations.items():
            came = type(f).__name__
            expects(callable(f), f"activations[{v!r}]", came, "a function", TypeError)
        object.__setattr__(self, "graph", nx.freeze(self.graph.copy()))


@shaped
def preactivations(
    network: Network, x: Float[np.ndarray, "d"]
) -> dict[Hashable, float]:
    """{v: z_v} with z_v = x_j at input j and z_v = b_v + Σ w_(u,v) a_u elsewhere;
    a_u is σ_u(z_u) at a hidden u and x_j at an input.

    (B-input-preactivation, B-preactivation, B-activation) ValueError unless x has one
    entry for each input.
    """
    expects_shape("x", x, (len(network.inputs),))
    given = dict(zip(network.inputs, x.tolist()))
    z: dict[Hashable, float] = {}
    a: dict[Hashable, float] = {}
    for v in nx.topological_sort(network.graph):
        if v in given:
            z[v] = a[v] = given[v]
            continue
        edges = network.graph.in_edges(v, data="w")
        z[v] = network.graph.nodes[v]["b"] + sum(w * a[u] for u, _, w in edges)
        if v in network.activations:
            a[v] = float(network.activations[v](z[v]))
    return z


@shaped
def network_function(
    network: Network, x: Float[np.ndarray, "d"]
) -> Float[np.ndarray, "d_out"]:
    """m(x) = (z_v for the outputs v, in their order). (B-network-output)

    ValueError as in `preactivations`.
    """
    z = preactivations(network, x)
    return np.array([z[v] for v in network.outputs])


# --- Layers: the graph becomes matrices


def _expects_layers(
    weights: Sequence[np.ndarray], biases: Sequence[np.ndarray]
) -> None:
    """Check that there are matrices that fit one after another, and a bias for each."""
    expects(len(weights) > 0, "weights", "none", "at least one matrix")
    same = len(weights) == len(biases)
    expects(same, "biases", len(biases), f"one for each of {len(weights)} matrices")
    for l, (W, b) in enumerate(zip(weights, biases)):
        width = weights[l - 1].shape[1] if l else "in"
        expects_shape(f"weights[{l}]", W, (width, "out"))
        expects_shape(f"biases[{l}]", b, W.shape[1:])


@shaped
def mlp(
    X: Float[np.ndarray, "*n d"],
    weights: Sequence[Float[np.ndarray, "_ _"]],
    biases: Sequence[Float[np.ndarray, "_"]],
    activation: Callable[[Any], Any] = relu,
) -> Float[np.ndarray, "*n d_out"]:
    """z⁽ᴸ⁾ with z⁽ˡ⁾ = a⁽ˡ⁻¹⁾ W⁽ˡ⁾ + b⁽ˡ⁾, a⁽⁰⁾ = x, a⁽ˡ⁾ = σ(z⁽ˡ⁾): affine maps with
    activations between them. (B-mlp-preact, B-mlp-act, B-mlp-function)

    X is one row or a matrix of rows. ValueError if there is no weight matrix, not
    one bias for each, or a shape that does not fit.

    >>> mlp(np.array([-1.0]), [np.array([[1.0]])], [np.array([0.0])])
    array([-1.])
    """
    _expects_layers(weights, biases)
    expects_shape("X", X, (len(weights[0]),))
    (W, b), *rest = zip(weights, biases)
    z = X @ W + b
    for W, b in rest:
        z = activation(z) @ W + b
    return z


@shaped
def layered_network(
    weights: Sequence[Float[np.ndarray, "_ _"]],
    biases: Sequence[Float[np.ndarray, "_"]],
    activation: Callable[[Any], Any] = relu,
) -> Network:
    """The fully connected network of these matrices; vertex (l, i) is number i of
    layer l. (B-mlp-def, B-fully-connected, B-weight-index)

    ValueError as in `mlp`.
    """
    _expects_layers(weights, biases)
    graph = nx.DiGraph()
    for l, (W, b) in enumerate(zip(weights, biases), start=1):
        for j, i in np.ndindex(W.shape):
            graph.add_edge((l - 1, j), (l, i), w=float(W[j, i]))
        for i in range(len(b)):
            graph.nodes[l, i]["b"] = float(b[i])
    depth = len(weights)
    inputs, outputs = [
        tuple((l, i) for i in range(width))
        for l, width in ((0, weights[0].shape[0]), (depth, weights[-1].shape[1]))
    ]
    hidden = [v for v in graph if 0 < v[0] < depth]
    return Network(graph, inputs, outputs, dict.fromkeys(hidden, activation))


# --- Doing without biases


@shaped
def without_biases(
    weights: Sequence[Float[np.ndarray, "_ _"]],
    biases: Sequence[Float[np.ndarray, "_"]],
    activation: Callable[[Any], Any] = relu,
    w0: float = 1.0,
) -> list[Float[np.ndarray, "_ _"]]:
    """Matrices W̃ of a network with all biases 0 and m̃(x, 1) = m(x). (B-bias-trick)

    ValueError if activation(w0) is 0 or not finite and there is more than one matrix,
    and as in `mlp`.
    """
    _expects_layers(weights, biases)
    c = float(activation(np.array(w0, dtype=float)))
    fits = len(weights) == 1 or (math.isfinite(c * w0) and c != 0)
    expects(fits, "w0", w0, "a number at which the activation is finite and not 0")
    wider, constant = [], 1.0
    for l, (W, b) in enumerate(zip(weights, biases), start=1):
        rows = np.vstack([W, b / constant])
        if l < len(weights):
            carry = np.zeros(len(rows))
            carry[-1] = w0 / constant
            rows = np.column_stack([rows, carry])
        wider.append(rows)
        constant = c
    return wider


# --- For the curious: content and place in one network


@shaped
def joint_positions(
    X: Float[np.ndarray, "n d"],
    W_x: Float[np.ndarray, "d k"],
    W_e: Float[np.ndarray, "M k"],
    W_z: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "n d"]:
    """z_p = ReLU(x_p W_x + e_p W_e) W_z, with e_p the one-hot row of p.
    (A-gehring-joint)

    ValueError for shapes that do not fit, no rows, or more than M rows.
    """
    X_with_e = append_positions(X, len(W_e))
    return np.maximum(X_with_e @ np.vstack([W_x, W_e]), 0) @ W_z


@shaped
def summed_positions(
    X: Float[np.ndarray, "n d"],
    W_x: Float[np.ndarray, "d k"],
    W_e: Float[np.ndarray, "M k"],
    W_zx: Float[np.ndarray, "k d"],
    W_ze: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "n d"]:
    """z_p = ReLU(x_p W_x) W_zx + ReLU(e_p W_e) W_ze. (A-gehring-sum)

    ValueError for shapes that do not fit, no rows, or more than M rows.
    """
    e = append_positions(np.zeros((len(X), 0)), len(W_e))
    return np.maximum(X @ W_x, 0) @ W_zx + np.maximum(e @ W_e, 0) @ W_ze
