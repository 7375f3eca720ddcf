"""What the records of this folder share: numbers that are made rather than
stored, sketches, and training in PyTorch.

A record MODEL.safetensors holds, all in f64:

    seed           of the numbers that are made
    made/PATH      scale, shift and sizes of a parameter or state before the
                   first step: element i is shift + scale u(i), rounded to f32,
                   with u from the path, i and the seed (`uniform`)
    loss           of ten steps
    grad/PATH      sketch of a gradient of the first step
    value/PATH     sketch of a value of the first forward pass
    step/PATH      sketch of a state after the first step
    ten/PATH       sketch of a parameter or state after ten steps of sgd with
                   momentum 0.9 on the same data
    error/PATH     how far PyTorch's own f32 lies from its f64: the gradient
                   (-1: a state) and after ten steps; relative, in L2, the worst
                   of several orders of summation
    floor          what an error of grad/ is relative to where the norm is less
                   than a millionth of it: some gradients are zero but for
                   rounding, like that of a key's bias
    half/PATH      how far PyTorch's own bf16 (autocast) lies from its f64: the
                   worst of THROWS throws, their root mean square, and the norm
                   that both are relative to, once of the gradient or of how far
                   the first step moved a state, once of how far ten moved it
    half           means over the tensors of what a throw is off, relative to
                   the root mean square of all, for the throw where it is worst:
                   of gradients, states after the first step, ten steps; then
                   how far the losses are off, the worst throw's and the root
                   mean square

The first throw is the record; another one moves every parameter by 2^-8 of
itself, up or down, and compares bf16 with f64 from there: the same model with
other roundings.

A sketch is the norm of a tensor, then its elements if they are 16 at most, else
16 sums of all elements with signs of chance (`bits`).  The mean square of the
differences of two tensors' sums is an unbiased estimate of the square of their
L2 distance, which is then known to 18 %; an error in one element shows in every
sum.  So files stay small however large the model is.
"""
import json
import re
import struct
import subprocess
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

STEPS, MOMENTUM, SUMS, SEEDS, THROWS = 10, 0.9, 16, 5, 16
LEAST_HALF = 2**-12


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors):
        narrow = getattr(tensors[name], "dtype", None) == np.float32
        data = np.ascontiguousarray(tensors[name], "<f4" if narrow else "<f8")
        end = offset + data.nbytes
        header[name] = {"dtype": "F32" if narrow else "F64",
                        "shape": list(np.shape(tensors[name])),
                        "data_offsets": [offset, end]}
        blobs.append(data.tobytes())
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- made numbers and sketches; tests/unit/reference_files.h has the same ----

def bits(path, n, seed):
    """splitmix64 from the FNV-1a hash of the path."""
    key = 0xcbf29ce484222325
    for c in path.encode():
        key = (key ^ c) * 0x100000001b3 % 2**64
    i = np.arange(1, n + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = np.uint64((key + seed) % 2**64) + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(path, shape, seed):
    """On [-1, 1), with 24 bits."""
    top = bits(path, int(np.prod(shape)), seed) >> np.uint64(40)
    return ((top.astype("f8") - 2**23) / 2**23).reshape(shape)


def sketch(path, x):
    x = np.asarray(x, "f8").ravel()
    norm = [np.linalg.norm(x)]
    if x.size <= SUMS:
        return np.concatenate([norm, x])
    b = bits(path, x.size, 0)
    sums = [np.where(b >> np.uint64(j) & np.uint64(1), x, -x).sum()
            for j in range(SUMS)]
    return np.concatenate([norm, sums])


# ---- the compiler's names ----

class Net:
    """Parameters and states by path, as the .dnn files name them: a call of a
    layer adds its name, numbered where the text calls it more than once."""

    def __init__(self, params, states, layout=torch.contiguous_format):
        self.params, self.states, self.layout = params, states, layout
        self.dtype = next(iter(params.values())).dtype
        self.prefix, self.calls = "", {}
        self.acts, self.margins, self.drops = {}, [], []

    def __getitem__(self, name):
        return self.params[self.prefix + name]

    def get(self, name):
        return self.params.get(self.prefix + name)

    def layer(self, name, function, *args, index="", number=None, **named):
        """`number`: of the call, where branches not taken hold some before."""
        key = self.prefix + name + index
        count = self.calls.get(key, -1) + 1 if number is None else number
        self.calls[key] = count
        path = f"{self.prefix}{name}[{count}]{index}."
        if not any(p.startswith(path) for p in self.params):
            path = self.prefix + name + index + "."
        outer, self.prefix = self.prefix, path
        result = function(self, *args, **named)
        self.prefix = outer
        return result

    def act(self, name, value, dims="NCYX"):
        """Remembers a value under the path that it has in the graph."""
        self.acts[self.prefix + name] = (value.detach(), dims)
        return value

    def stream(self, x):
        """Where layers add to `x`: in bf16 it is rounded from the start, as by
        the language's rule for what several operators read, and so is every
        sum; autocast alone would keep it in f32."""
        is_half = torch.is_autocast_enabled("cpu")
        return x.bfloat16() if is_half else x

    def images(self, numbers, shape, times):
        """As the .dnn files make them: csv / 4 - 1, enlarged."""
        x = numbers.reshape(shape).to(self.dtype) / 4 - 1
        if times > 1:
            x = F.interpolate(x, scale_factor=times, mode="bilinear",
                              align_corners=False)
        return x.contiguous(memory_format=self.layout)


class Adopted:
    """A module of torch or torchvision under the compiler's names: what its
    leaves own, in the order in which they are called, are the parameters and
    states of the program in the program's order.  `watch`: submodules whose
    results are values of the program, by path."""

    def __init__(self, module, *example, watch={}):
        self.module, self.watch, self.order = module.train(), watch, []
        hooks = [m.register_forward_hook(self.note(name, m))
                 for name, m in module.named_modules()
                 if list(m.parameters(recurse=False))]
        module(*example)
        for hook in hooks:
            hook.remove()

    def note(self, name, leaf):
        return lambda *_: self.order.append((name, leaf))

    def values(self, net):
        params, states = (iter(x.values()) for x in (net.params, net.states))
        values = {}
        for name, leaf in self.order:
            for key, p in leaf.named_parameters(recurse=False):
                given = next(params)
                if isinstance(leaf, torch.nn.Linear) and given.ndim == 2:
                    given = given.T
                values[f"{name}.{key}"] = given.reshape(p.shape)
            for key, s in leaf.named_buffers(recurse=False):
                if s.ndim:
                    values[f"{name}.{key}"] = next(states)
        assert not list(params) and not list(states)
        return values

    def __call__(self, net, *args):
        hooks = [self.module.get_submodule(name).register_forward_hook(
                    lambda m, i, o, path=path: void(
                        net.act(path, o, "NCYX" if o.ndim == 4 else "NK")))
                 for name, path in self.watch.items()]
        out = functional_call(self.module, self.values(net), args)
        for hook in hooks:
            hook.remove()
        return out


def void(_):
    return None


def read_graph(dnnc, name):
    """Shapes of parameters and states, and dim orders of values, by path.  The
    compiler is asked for nothing else."""
    text = subprocess.run([dnnc, "ir", name + ".dnn", "-O0", "--follow-links",
                           "--stop-after=canonicalize"], check=True,
                          capture_output=True, text=True).stdout
    params, states, orders = {}, {}, {}
    for line in text.splitlines():
        found = re.match(r'  %.* : \w+\[([^]]*)\].* "([^"]+)"$', line)
        if not found:
            continue
        dims = [d.split(":") for d in found[1].split(", ") if d]
        shape = tuple(int(d[1]) for d in dims)
        if "] param " in line:
            params[found[2]] = shape
        elif "] state " in line:
            states[found[2]] = shape
        else:
            orders[found[2]] = "".join(d[0] for d in dims)
    return params, states, orders


EMBEDDINGS = ("emb", "wte", "wpe", "wse", "read", "write", "place", "pos",
              "first")


def initial(path, shape):
    """Scale and shift."""
    name = path.split(".")[-1]
    if name in EMBEDDINGS:
        return 1.0, 0.0
    if name == "g" and shape:
        return 0.35, 1.0
    if name == "var":
        return 0.5, 1.0
    if "conv_bn" in path and name == "b":   # most of a relu's inputs pass:
        return 0.35, 0.7                    # else ten steps are chaos
    if name[0] == "b" or name in ("mean", "h0", "c0") or len(shape) < 2:
        return 0.35, 0.0
    if name == "wo":
        fan = np.prod(shape[:-1])
    elif name == "w" and len(shape) > 3:
        fan = np.prod(shape[1:]) / 2        # a relu follows
    else:
        fan = shape[1] if "experts" in path and len(shape) == 3 else shape[0]
    return np.sqrt(3 / fan), 0.0


# ---- training ----

class Run:
    """Ten steps; what the first gave, and the parameters and states after.  Ends
    where a choice is nearer to another one than `margin`."""

    def __init__(self, spec, start, states, dtype, half=False,
                 layout=torch.contiguous_format, margin=0):
        p = {k: torch.tensor(v, dtype=dtype, requires_grad=True)
             for k, v in start.items()}
        s = {k: torch.tensor(v, dtype=dtype) for k, v in states.items()}
        optimizer = torch.optim.SGD(p.values(), spec.rate, MOMENTUM)
        data = torch.tensor(spec.rows)
        self.losses, self.margin = [], np.inf
        for step in range(STEPS):
            net = Net(p, s, layout)
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = spec.model(net, data)
            optimizer.zero_grad()
            loss.backward()
            self.losses.append(loss.item())
            self.margin = min([self.margin] + net.margins)
            if step == 0 and net.drops and not any(net.drops):
                self.margin = 0     # experts that never lack a slot
            if self.margin < margin:
                return
            if step == 0:
                self.acts = net.acts
                self.first = {k: t.grad.double().numpy().copy()
                              for k, t in p.items()}
                self.first |= {k: t.double().numpy().copy()
                               for k, t in s.items()}
            optimizer.step()
        self.last = {k: t.detach().double().numpy()
                     for k, t in {**p, **s}.items()}


def batch_norm(x, mean, var, g, b, training, momentum, eps):
    """F.batch_norm in the dtype of x: on the CPU PyTorch's own has its sums,
    and the gradient's, in f64."""
    assert training
    dims = [d for d in range(x.ndim) if d != 1]
    at = (slice(None),) + (None,) * (x.ndim - 2)
    m = x.mean(dims)
    d = x - m[at]
    v = (d * d).mean(dims)
    if mean is not None:
        n = x.numel() // x.shape[1]
        with torch.no_grad():
            mean.mul_(1 - momentum).add_(momentum * m)
            var.mul_(1 - momentum).add_(momentum * v * (n / (n - 1)))
    return d * torch.rsqrt(v + eps)[at] * g[at] + b[at]


def off(got, exact, floor=0.0):
    size = np.linalg.norm(exact)
    size = floor if size < 1e-6 * floor else size
    return np.linalg.norm(got - exact) / size if size else np.linalg.norm(got)


class Spec:
    def __init__(self, name, model, rows, rate, scales, margin):
        self.name, self.model, self.rows, self.rate = name, model, rows, rate
        self.scales, self.margin = scales, margin


SPECS = {}


def model(name, rows, rate, scales={}, margin=0.01):
    """A decorator: records FUNCTION(net, rows), a loss, as `name`.  `scales`:
    scale and shift by the end of a path; `margin`: how far a choice of the
    model must be from another one, else the seed is left out."""
    def note(function):
        SPECS[name] = Spec(name, function, rows, rate, scales, margin)
        return function
    return note


def starts(spec, shapes, seed):
    made, values = {}, {}
    for path, shape in shapes.items():
        scale, shift = initial(path, shape)
        for end, given in spec.scales.items():
            if path.endswith(end):
                scale, shift = given
        scale, shift = float(np.float32(scale)), float(np.float32(shift))
        made[path] = np.array([scale, shift, *shape])
        u = uniform(path, shape, seed)
        values[path] = (shift + scale * u).astype("f4")
    return made, values


class Trial:
    """The parameters of one seed, and what f64 makes of them."""

    def __init__(self, spec, params, states, seed):
        self.spec, self.seed, self.params, self.states = (spec, seed, params,
                                                          states)
        self.made, self.values = starts(spec, {**params, **states}, seed)
        self.exact = self.run(torch.float64, margin=spec.margin)
        self.is_clear = self.exact.margin >= spec.margin
        if not self.is_clear:           # rounding could change a choice
            return
        grads = [self.exact.first[k] for k in params]
        self.floor = 1e-2 * np.sqrt(sum(np.sum(g * g) for g in grads))
        self.kinks = max(self.worst(self.run(torch.float64, nudge=n))
                         for n in (3e-7, -3e-7))
        self.roughness = self.worst(self.run(torch.float64, nudge=2**-10))

    def run(self, dtype, nudge=0, **named):
        return self.run_from(self.moved(nudge, nudge), dtype, **named)

    def moved(self, nudge, throw):
        """Each number of the parameters by this of itself, up or down."""
        return {k: self.values[k] * (1 + nudge * np.sign(
                    uniform(f"{k} {throw}", self.values[k].shape, 0)))
                for k in self.params}

    def run_from(self, start, dtype, **named):
        return Run(self.spec, start, {k: self.values[k] for k in self.states},
                   dtype, **named)

    def worst(self, run):
        return max([off(run.first[k], self.exact.first[k], self.floor)
                    for k in self.params] +
                   [off(run.last[k], v) for k, v in self.exact.last.items()])


def choose(spec, params, states):
    """Of a few seeds the smoothest: where a relu's input or the difference of
    two in a window is close to zero, a comparison would say nothing."""
    trials, seed = [], 0
    while len(trials) < SEEDS or min(t.kinks for t in trials) > 1e-4:
        seed += 1
        trial = Trial(spec, params, states, seed)
        trials += [trial] if trial.is_clear else []
    return min(trials, key=lambda t: (t.kinks > 1e-4, t.roughness))


# ---- how far PyTorch's own are off ----

def narrow_errors(trial):
    runs = [trial.run(torch.float32),
            trial.run(torch.float32, layout=torch.channels_last)]
    with torch.backends.mkldnn.flags(enabled=False):
        runs.append(trial.run(torch.float32))
    with mock.patch.object(F, "batch_norm", batch_norm):
        runs.append(trial.run(torch.float32))
    exact, out = trial.exact, {}
    for path, last in exact.last.items():
        first = max(off(r.first[path], exact.first[path], trial.floor)
                    for r in runs) if path in trial.params else -1.0
        ten = max(off(r.last[path], last) for r in runs)
        out["error/" + path] = np.array([first, ten])
    return out


class Throw:
    """Errors of bf16 from parameters near those of a trial, and the norms that
    they are relative to, by path."""

    def __init__(self, trial, number):
        moved = trial.moved(2**-8 if number else 0, f"throw {number}")
        start = {k: v.astype("f4") for k, v in moved.items()}
        exact = trial.run_from(start, torch.float64, margin=trial.spec.margin)
        self.is_clear = exact.margin >= trial.spec.margin
        if not self.is_clear:
            return
        half = trial.run_from(start, torch.float32, half=True)
        states = {k: trial.values[k] for k in trial.states}
        self.grads = self.errors(half.first, exact.first, dict.fromkeys(start, 0))
        self.steps = self.errors(half.first, exact.first, states)
        self.ten = self.errors(half.last, exact.last, start | states)
        self.loss = off(half.losses, np.array(exact.losses))

    def errors(self, got, exact, start):
        """Relative to the way from the start."""
        norms = {k: np.linalg.norm(exact[k] - s) for k, s in start.items()}
        floor = 1e-2 * np.linalg.norm(list(norms.values()))
        norms = {k: floor if n < 1e-6 * floor else n for k, n in norms.items()}
        return {k: (np.linalg.norm(got[k] - exact[k]) / n, n)
                for k, n in norms.items()}


def root_mean_square(errors):
    return np.sqrt(np.mean(np.square(errors), -1))


def half_errors(trial):
    throws, number, out, shares = [], 0, {}, []
    while len(throws) < THROWS:
        throw = Throw(trial, number)
        throws += [throw] if throw.is_clear else []
        number += 1
    for what in ("grads", "steps", "ten"):
        norms = {k: n for k, (e, n) in getattr(throws[0], what).items()}
        errors = np.array([[getattr(t, what)[k][0] for t in throws]
                           for k in norms]).reshape(-1, THROWS)
        errors = np.maximum(errors, LEAST_HALF)
        typical = root_mean_square(errors)
        for k, e, t in zip(norms, errors, typical):
            out.setdefault("half/" + k, []).extend([e.max(), t, norms[k]])
        shares.append((errors / typical[:, None]).mean(0).max() if norms else 0)
    losses = [t.loss for t in throws]
    out["half"] = np.array(shares + [max(losses), root_mean_square(losses)])
    return out


def record(dnnc, spec):
    params, states, orders = read_graph(dnnc, spec.name)
    trial = choose(spec, params, states)
    exact = trial.exact
    out = {"loss": np.array(exact.losses), "floor": np.array(trial.floor),
           "seed": np.array(float(trial.seed))}
    out |= narrow_errors(trial) | half_errors(trial)
    for path, last in exact.last.items():
        out["made/" + path] = trial.made[path]
        out["ten/" + path] = sketch(path, last)
        name = "grad/" if path in params else "step/"
        out[name + path] = sketch(path, exact.first[path])
    for path, (value, dims) in exact.acts.items():
        order = [dims.index(d) for d in orders[path]]
        out["value/" + path] = sketch(path, value.permute(order).numpy())
    write_safetensors(spec.name + ".safetensors", out)
    report(spec, trial, out)


def write_rows(spec):
    with open(spec.name + ".csv", "w") as file:
        for row in spec.rows:
            file.write(",".join(f"{v:g}" for v in row.tolist()) + "\n")


def report(spec, trial, out):
    print(f"{spec.name}: seed {trial.seed}, {len(trial.params)} parameters, "
          f"loss {trial.exact.losses[0]:.6f} to {trial.exact.losses[-1]:.6f}")
    for i, what in enumerate(("gradient", "ten steps")):
        error, path = max((v[i], k) for k, v in out.items()
                          if k.startswith("error/"))
        print(f"    PyTorch's worst f32 {what}: {error:.2g} {path[6:]}")
    for what, i, paths in (("gradients", 1, trial.params),
                           ("first step", 1, trial.states),
                           ("ten steps", 4, trial.values)):
        typical = [out["half/" + k][i] for k in paths]
        if typical:
            print(f"    PyTorch's bf16 {what}: median {np.median(typical):.2g}, "
                  f"worst {max(typical):.2g}")
