#!/usr/bin/env python3
"""What PyTorch and scikit-learn compute for the metrics of tests/e2e/metrics.dnn.

Writes metrics.csv, the records (five logits and two labels: in the first -1 is
to be ignored), and metrics.txt, a line `name value...` for each metric over all
of them.  Class 4 occurs neither as a label nor as a prediction, class 3 is
predicted but no label.  Needs torch, numpy and scikit-learn.
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn import metrics as sk

N, K = 23, 5
torch.manual_seed(11)
x = (torch.randn(N, K, dtype=torch.float64) * 2).round(decimals=3)
x[:, 4] = -9.0
z = torch.randint(0, 3, (N,))
x[torch.arange(N), z] += 1.25
y = z.clone()
y[torch.rand(N) < 0.4] = -1
q = torch.softmax(torch.randn(N, K, dtype=torch.float64), 1).round(decimals=4)
with open("metrics.csv", "w") as out:
    for i in range(N):
        numbers = [f"{v:.4f}" for v in x[i].tolist() + q[i].tolist()]
        out.write(",".join(numbers + [str(int(y[i])), str(int(z[i]))]) + "\n")

kept = (y != -1).numpy()
labels, truth = list(range(K)), y.numpy()[kept]
guess = x.argmax(1).numpy()
seen = guess[kept]
occurs = [c for c in labels if c in truth or c in seen]
w = torch.tensor([1, 2, 0.5, 3, 1], dtype=torch.float64)


def row(name, *values):
    texts = ["null" if v is None else f"{float(v):.10g}" for v in values]
    out.write(f"{name} {' '.join(texts)}\n")


def each(function, **more):
    """A value for each class, none for one that does not occur."""
    values = function(truth, seen, labels=labels, average=None, **more)
    return [v if c in occurs else None for c, v in enumerate(values)]


with open("metrics.txt", "w") as out:
    ce = F.cross_entropy(x, y, ignore_index=-1)
    row("loss", ce + 0.5 * F.mse_loss(x, q))
    row("perplexity", ce.exp())
    row("cross_entropy[0]", F.cross_entropy(x, y, weight=w, ignore_index=-1))
    row("cross_entropy[1]", F.cross_entropy(x, z, weight=w, label_smoothing=0.2))
    row("cross_entropy[2]", F.cross_entropy(x, q, weight=w, label_smoothing=0.2))
    row("metric[0]", 1 - sk.accuracy_score(truth, seen))
    row("metric[1]", (ce - F.cross_entropy(x, y, weight=w, ignore_index=-1)) / 4)
    row("accuracy[0]", sk.accuracy_score(truth, seen))
    row("accuracy[1]", sk.top_k_accuracy_score(truth, x.numpy()[kept], k=2,
                                               labels=labels))
    row("accuracy[2]", sk.accuracy_score(z.numpy(), guess))
    zero = {"zero_division": 0}
    row("precision[0]", sk.precision_score(truth, seen, average="macro", **zero))
    row("precision[1]", sk.precision_score(truth, seen, labels=[1],
                                           average="macro", **zero))
    row("recall[0]", sk.recall_score(truth, seen, average="macro", **zero))
    row("recall[1]", sk.recall_score(truth, seen, average="weighted", **zero))
    row("f1_score[0]", sk.f1_score(truth, seen, average="macro", **zero))
    row("f1_score[1]", sk.f1_score(truth, seen, average="micro", **zero))
    row("f1_score[2]", *each(sk.f1_score, **zero))
    row("f1_score[3]", sk.f1_score(z.numpy(), guess, average="weighted", **zero))
    row("mean_iou[0]", sk.jaccard_score(truth, seen, average="macro", **zero))
    row("mean_iou[1]", *each(sk.jaccard_score, **zero))
    row("mean_iou[2]", sk.jaccard_score(truth, seen, average="micro", **zero))
    table = sk.confusion_matrix(truth, seen, labels=labels)
    row("confusion", *np.asarray(table).reshape(-1))
assert set(occurs) == {0, 1, 2, 3} and 3 not in truth and 3 in seen
