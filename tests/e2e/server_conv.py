# server_conv.py -- the model of server_conv.dnn in integers, with what servers.py takes of versions.py.
#
#   server_conv.py data FOLDER                     writes x.npy and y.npy
#
# A value of a layer is a list of channels, each a list of rows.
import random
import struct
import sys

from versions import BATCH, EVALUATED, RECORDS, compare, f32, loss_of, numbers
from versions import product, read_tensors, turned, update, wrap

__all__ = ["BATCH", "EVALUATED", "RECORDS", "compare", "loss_of", "numbers", "read_tensors", "update"]
CONVS = [(2, 1, 3), (3, 2, 2)]  # channels out and in, and the window
PATTERNS = [(1, 3), (3, 1), (7, 1)]
PATHS = ["conv2d[0].w", "conv2d[1].w", "linear.w"]
SIDE, FEATURES, K = 5, 12, 3


def records():
    r = random.Random(17)
    images = [[[[r.randint(-1, 1) for _ in range(SIDE)] for _ in range(SIDE)]] for _ in range(RECORDS)]
    return images, [[r.randint(-1, 1) for _ in range(K)] for _ in range(RECORDS)]


def zeros(layer):
    rows, columns = (CONVS[layer][0], CONVS[layer][1] * CONVS[layer][2] ** 2) if layer < 2 else (FEATURES, K)
    return [[0.0] * columns for _ in range(rows)]


def weights_of(layer, w):
    """The integers that a layer multiplies by: rows are channels out, columns windows of channels in."""
    a, b = PATTERNS[layer]
    k = CONVS[layer][2] if layer < 2 else K
    return [[wrap(f32(f32(v + a * i) + b * (j % k))) for j, v in enumerate(row)] for i, row in enumerate(w)]


def windows(image, k):
    """By position: the elements of a window, channels outermost, with their places."""
    side = len(image[0]) - k + 1
    return [
        [(c, y + dy, x + dx) for c in range(len(image)) for dy in range(k) for dx in range(k)]
        for y in range(side)
        for x in range(side)
    ]


def conv(image, w, k):
    side = len(image[0]) - k + 1
    places = windows(image, k)
    flat = [[sum(v * image[c][y][x] for v, (c, y, x) in zip(row, at)) for at in places] for row in w]
    assert all(abs(v) < 1 << 24 for row in flat for v in row), "it would round"
    return [[row[y * side : (y + 1) * side] for y in range(side)] for row in flat]


def conv_back(image, w, k, back):
    """Gradients of the weights and of the image."""
    grad = [[0] * len(row) for row in w]
    of_image = [[[0] * len(row) for row in channel] for channel in image]
    places = windows(image, k)
    for o, channel in enumerate(back):
        for g, at in zip([v for row in channel for v in row], places):
            for j, (c, y, x) in enumerate(at):
                grad[o][j] += g * image[c][y][x]
                of_image[c][y][x] += g * w[o][j]
    return grad, of_image


def wrapped(image):
    return [[[wrap(v) for v in row] for row in channel] for channel in image]


def layers_of(image, weights):
    inputs = [image]
    for i, (_, _, k) in enumerate(CONVS):
        inputs.append(wrapped(conv(inputs[-1], weights[i], k)))
    return inputs


def flat_of(image):
    return [v for channel in image for row in channel for v in row]


def forward(x, weights):
    inputs = [layers_of(image, weights) for image in x]
    return product([flat_of(of[-1]) for of in inputs], weights[2]), inputs


def gradients(x, y, weights):
    out, inputs = forward(x, weights)
    grads = [[[0] * len(row) for row in w] for w in weights[:2]]
    grads.append(product(turned([flat_of(of[-1]) for of in inputs]), y))
    for of, back in zip(inputs, product(y, turned(weights[2]))):
        side = len(of[-1][0])
        rows = [back[r * side : (r + 1) * side] for r in range(len(back) // side)]
        back = [rows[c * side : (c + 1) * side] for c in range(len(of[-1]))]
        for i in (1, 0):
            grad, back = conv_back(of[i], weights[i], CONVS[i][2], back)
            grads[i] = [[a + b for a, b in zip(row, other)] for row, other in zip(grads[i], grad)]
    return loss_of(out, y), grads


def write_npy(path, shape, values):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack("<%df" % len(values), *values))


if __name__ == "__main__":
    x, y = records()
    write_npy(sys.argv[2] + "/x.npy", (RECORDS, 1, SIDE, SIDE), [v for image in x for v in flat_of(image)])
    write_npy(sys.argv[2] + "/y.npy", (RECORDS, K), [v for row in y for v in row])
