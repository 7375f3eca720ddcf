"""Two towers, each of which makes a vector of tables that it looks up."""
import numpy as np
import torch.nn.functional as F

from language import linear
from recorder import model

USERS, ITEMS, TAGS, SEEN, HAS = 20, 12, 5, 20, 8


def pairs(seed, n):
    """Rows of a user, items seen, an item, its tags, and whether it was taken.
    """
    random = np.random.default_rng(seed)
    parts = [(USERS, 1), (ITEMS, SEEN), (ITEMS, 1), (TAGS, HAS), (2, 1)]
    return np.hstack([random.integers(0, below, (n, columns))
                      for below, columns in parts])


def tower(p, x, b):
    x = F.relu(linear(x, p, b + "tower.linear[0]."))
    x = linear(x, p, b + "tower.linear[1].")
    return F.layer_norm(x, x.shape[-1:])


@model("two_tower_small", pairs(71, 6), 0.1)
def two_tower(p, rows):
    user, seen, item, has, y = rows.split([1, SEEN, 1, HAS, 1], 1)
    u = p["user_tower.of_user"][user[:, 0]]
    u = tower(p, u + p["user_tower.of_item"][seen].mean(1), "user_tower.")
    v = p["item_tower.of_item"][item[:, 0]]
    v = tower(p, v + p["item_tower.of_tag"][has].mean(1), "item_tower.")
    logits = (u * v).sum(1) / u.shape[1] ** 0.5
    return F.binary_cross_entropy_with_logits(logits, y[:, 0].to(logits.dtype))
