"""Small models of several kinds for train_plans.py: dense, with states, convolutions, recurrent, attention, experts, random
numbers, files of unequal length.  Each has the settings of its train block where @SETTINGS@ stands."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LINEAR = """layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  param b: [O] = zeros
  return dot(x, w, I) + b
}
"""

DIGITS = """data set {
  x: [B, P] = csv("data/inputs/uci-digits.csv.gz", 0..63) / 16
  y: i32[B] = csv("data/inputs/uci-digits.csv.gz", 64)
  eval = 31
}
"""

TRAIN = """train {
  loss = @LOSS@
  metrics = [@METRICS@]
  optimizer = sgd(lr = 0.1, momentum = 0.9)
  eval_every = 2
@SETTINGS@}
"""

DENSE = (
    "dim B = 24, P = 64, H = 8, K = 10\n"
    + LINEAR
    + """net tiny(x: [B, P]) -> [B, K] {
  x = relu(linear[P -> H](x))
  x = dropout(relu(linear[H -> H](x)), @DROP@)
  x = relu(linear[H -> H](x))
  return linear[H -> K](x)
}
"""
)

NORMED = """dim B = 24, P = 64, H = 8, K = 10
layer normed[I -> O](x: [B, I]) -> [B, O] {
  param w: [I, O] = he_uniform(I)
  param g: [O] = ones
  param b: [O] = zeros
  state mean: [O] = zeros
  state var: [O] = ones
  return relu(batchnorm(dot(x, w, I), B, mean, var@GROUP@) * g + b)
}
net tiny(x: [B, P]) -> [B, K] {
  x = normed[P -> H](x)
  x = normed[H -> H](x)
  x = dropout(normed[H -> H](x), @DROP@)
  param v: [H, K] = normal(0.5)
  return dot(x, v, H)
}
"""

CONVOLUTIONS = (
    "dim B = 24, P = 64, K = 10, Q = 1, Y = 8, X = 8\n"
    + LINEAR
    + """layer conv_bn(x: [B, C:I, Y, X], out, k, stride = 1) {
  param w: [O:out, C:I, Y:k, X:k] = he_normal(I * k * k)
  param g: [C:out] = ones
  param b: [C:out] = zeros
  state mean: [C:out] = zeros
  state var: [C:out] = ones
  y = conv(x, w, C, (Y, X), stride = stride, pad = k // 2)[O -> C]
  return batchnorm(y, (B, Y, X), mean, var@GROUP@) * g + b
}
net tiny(x: [B, P]) -> [B, K] {
  y = x[P -> (Q, Y, X)][Q -> C]
  y = relu(conv_bn(y, 4, 3))
  y = maxpool(y, (Y, X), 2)
  z = relu(conv_bn(y, 4, 3))
  y = dropout(relu(conv_bn(z, 6, 3, stride = 2)), @DROP@)
  return linear[C -> K](mean(y, (Y, X)))
}
"""
)

RECURRENT = (
    "dim B = 24, T = 6, V = 128, E = 8, C = 12\n"
    + LINEAR
    + """layer gru[T, I -> O](x: [B, T, I]) -> [B, T, O] {
  param wx: [I, G:3, O] = uniform(1 / sqrt(O))
  param wh: [P:O, G:3, O] = uniform(1 / sqrt(O))
  param bx, bh: [G:3, O] = zeros
  u = dot(x, wx, I) + bx
  y = scan T (h: [B, O] = 0) {
    a, b, c = unstack(u, G)
    r, z, n = unstack(dot(h[O -> P], wh, P) + bh, G)
    z = sigmoid(b + z)
    h = (1 - z) * tanh(c + sigmoid(a + r) * n) + z * h
    return h
  }
  return y
}
net tiny(tok: i32[B, T]) -> [B, T, V] {
  param emb: [V, E] = normal(1.0)
  x = gru[T, E -> C](gather(emb, tok, V))
  y = gru[T, C -> C](dropout(x, @DROP@))
  return linear[C -> V](y)
}
data set {
  x: i32[B, T] = bytes("data/inputs/names.txt")
  y: i32[B, T] = next(x)
  eval = 0.001
}
"""
)

DRAWS = (
    "dim B = 24, P = 64, H = 8, Z = 4\n"
    + LINEAR
    + """net tiny(x: [B, P]) {
  h = relu(linear[P -> H](x))
  mean = linear[H -> Z](h)
  log_var = linear[H -> Z](h)
  code = mean + exp(0.5 * log_var) * normal(mean)
  d = relu(linear[Z -> H](dropout(code, @DROP@)))
  logits = linear[H -> P](d)
  unlike = sum(softplus(logits) - x * logits, P)
  kl = 0.5 * sum(exp(log_var) + mean * mean - 1 - log_var, Z)
  return (unlike + kl, sigmoid(logits))
}
data set {
  x: [B, P] = csv("data/inputs/uci-digits.csv.gz", 0..63) / 16
  eval = 31
}
"""
)

FILES = DENSE + DIGITS.replace('csv("data/inputs/uci-digits.csv.gz", 0..63)', 'csv("part-*.csv", 0..63)').replace(
    '"data/inputs/uci-digits.csv.gz"', '"part-*.csv"'
).replace("eval = 31", "eval = 7")


class Kind:
    """A model: its text, its batch dim, dims that may be sharded, layers, parameters, values after which it may be cut."""

    def __init__(self, name, text, dims, layers, matrices, stages):
        self.name, self.text, self.dims, self.layers, self.matrices, self.stages = name, text, dims, layers, matrices, stages


def trained(text, loss, metrics=""):
    return text + TRAIN.replace("@LOSS@", loss).replace("@METRICS@", metrics)


def read(path, sizes=()):
    """Returns a model of the repository with other sizes, and settings where its steps are."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    for old, new in sizes:
        text = text.replace(old, new, 1)
    text = re.sub(r"\n  (clip|steps|eval_every|eval_batches) +=[^\n]*", "", text)
    text = re.sub(r"(data \w+ \{[^}\n]*) \}", r"\1; eval = 20 }", text)
    begin = text.index("train {")
    end = text.index("\n}", begin)
    return text[:end] + "\n  eval_every = 2\n  eval_batches = 2\n@SETTINGS@" + text[end + 1 :]


def kinds():
    loss = "cross_entropy(tiny(set.x), set.y, K)"
    accuracy = "accuracy(tiny(set.x), set.y, K)"
    linear = [f"linear[{i}]" for i in range(4)]
    dense_parts = (["H", "K", "P"], linear, [f"{path}.w" for path in linear], ["x[0]", "x[1]", "x[2]"])
    words = [("B = 8", "B = 12"), ("T = 16", "T = 8"), ("T = 12", "T = 8")]
    untied = [("return dot(norm(x), wte, C)", "param head: [V, C] = normal(0.02)\n  return dot(norm(x), head, C)")]
    gpt_parts = (
        ["H", "F", "V", "C", "T"],
        ["block", "block[0]", "block[1].attn", "block.mlp"],
        ["block.attn.wq", "block[1].mlp.w1", "wte", "wpe", "block.norm[0].g"],
        ["block[0].attn", "block[0]", "block[1].attn"],
    )
    moe_parts = (
        ["H", "F", "V", "C", "E"],
        ["moe_block", "moe_block[0]", "moe_block.experts", "moe_block[1].attn"],
        ["moe_block.attn.wq", "moe_block[1].experts.w1", "wte", "moe_block.experts.wg"],
        ["moe_block[0].attn", "moe_block[0]"],
    )
    return [
        Kind("dense", trained(DENSE + DIGITS, loss, accuracy), *dense_parts),
        Kind("files", trained(FILES, loss, accuracy), *dense_parts),
        Kind(
            "normed",
            trained(NORMED + DIGITS, loss, accuracy),
            ["H", "K"],
            ["normed", "normed[1]", "normed[2]"],
            ["normed[0].w", "normed[1].w", "normed[2].g", "v"],
            ["x[0]", "x[1]", "x[2]"],
        ),
        Kind(
            "conv",
            trained(CONVOLUTIONS + DIGITS, loss, accuracy),
            ["K", "Y", "O", "C"],
            ["conv_bn", "conv_bn[1]", "conv_bn[2]"],
            ["conv_bn[0].w", "conv_bn[1].w", "conv_bn[2].g", "linear.w"],
            ["conv_bn[0]", "conv_bn[1]", "conv_bn[2]"],
        ),
        Kind(
            "recurrent",
            trained(RECURRENT, "cross_entropy(tiny(set.x), set.y, V)", "accuracy(tiny(set.x), set.y, V)"),
            ["C", "V", "O"],
            ["gru", "gru[0]", "gru[1]"],
            ["gru[0].wx", "gru[1].wh", "emb", "linear.w"],
            ["gru[0]", "gru[1]"],
        ),
        Kind(
            "draws",
            trained(DRAWS, "mean(tiny(set.x)[0])", "mse(tiny(set.x)[1], set.x)"),
            ["H", "Z", "P"],
            linear,
            [f"{path}.w" for path in linear],
            ["h", "code", "d"],
        ),
        Kind("gpt", read("benchmarks/systems/gpt.dnn", words), *gpt_parts),
        Kind("untied", read("benchmarks/systems/gpt.dnn", words + untied), *gpt_parts),
        Kind("experts", read("benchmarks/systems/moe.dnn", words), *moe_parts),
    ]
