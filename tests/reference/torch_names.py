"""Records the names and shapes of checkpoints of torchvision and Hugging Face,
and what some of their models compute.

    python3 torch_names.py      (needs torch, torchvision, transformers, numpy)

torch_names.txt.gz: for every model a line "== NAME" and a line for each tensor
of its state_dict, "F32 conv1.weight 64 3 7 7".  Tensors that share memory with
another one are left out, as save_pretrained does.
predict_NAME.npy: results in f64 of models whose parameters and inputs come
from a formula, which tests/e2e/torch_names.c has too; the check of both is
tests/e2e/predict_reference.sh.
"""
import gzip

import numpy as np
import torch
import torchvision
import transformers

from recorder import bits, uniform


# ---- names and shapes ----

def vision(name, **kw):
    if name in ("googlenet", "inception_v3"):
        kw = dict(init_weights=False, **kw)
    with torch.device("meta"):
        return getattr(torchvision.models, name)(**kw)


def real(name):
    kw = {}
    if name in ("googlenet", "inception_v3"):
        kw = dict(init_weights=False)
    return getattr(torchvision.models, name)(**kw)


def hugging(kind, config, **kw):
    with torch.device("meta"):
        return getattr(transformers, kind)(getattr(transformers, config)(**kw))


RESNETS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
           "wide_resnet50_2"]
VGGS = [f"vgg{n}{bn}" for n in (11, 13, 16, 19) for bn in ("", "_bn")]
DENSENETS = ["densenet121", "densenet161", "densenet169", "densenet201"]
SMALL_GPT2 = dict(vocab_size=96, n_positions=16, n_embd=32, n_layer=3, n_head=4,
                  bos_token_id=None, eos_token_id=None)
SMALL_BERT = dict(vocab_size=96, max_position_embeddings=16, hidden_size=32,
                  num_hidden_layers=2, num_attention_heads=4,
                  intermediate_size=128)
OTHERS = ["alexnet", "mobilenet_v2", "squeezenet1_0", "vit_b_16", "vit_b_32",
          "vit_l_16"]


def models():
    for name in RESNETS + VGGS + DENSENETS + OTHERS:
        yield name, vision(name)
    for name in ("googlenet", "inception_v3"):
        yield name, vision(name)
        yield name + "_no_aux", vision(name, aux_logits=False)
    for name, kind in (("bert", "BertForPreTraining"),
                       ("bert_masked", "BertForMaskedLM"),
                       ("bert_model", "BertModel")):
        yield name, hugging(kind, "BertConfig", num_hidden_layers=3)
    yield "gpt2", hugging("GPT2LMHeadModel", "GPT2Config")
    yield "gpt2_small", hugging("GPT2LMHeadModel", "GPT2Config", **SMALL_GPT2)
    yield "bert_small", hugging("BertForMaskedLM", "BertConfig", **SMALL_BERT)


def tied_names(model):
    return set(getattr(model, "all_tied_weights_keys", None) or ())


def lines(model):
    tied = tied_names(model)
    for name, tensor in model.state_dict().items():
        if name in tied:
            continue
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        yield " ".join([dtype, name, *map(str, tensor.shape)])


def record_names():
    text = []
    for name, model in models():
        text += [f"== {name}", *lines(model)]
    with open("torch_names.txt.gz", "wb") as out:
        out.write(gzip.compress(("\n".join(text) + "\n").encode(), 9, mtime=0))


# ---- the formula ----

def formula(name, shape):
    """Shift and scale, as tests/e2e/torch_names.c has them."""
    fan = float(np.prod(shape[1:])) if len(shape) else 1.0
    if name.endswith("running_var"):
        return 1, 0.5
    if name.endswith("running_mean"):
        return 0, 0.25
    if len(shape) == 3:
        return 0, 0.5
    if len(shape) > 1:
        return 0, np.sqrt(3 / fan)
    return (1, 0.25) if name.endswith(("weight", "gamma")) else (0, 0.125)


def fill(model):
    """Values that are exact in f32, then a model of f64."""
    model.eval()
    for name, tensor in model.state_dict().items():
        if tensor.dtype == torch.int64 or name in tied_names(model):
            continue
        shift, scale = formula(name, tensor.shape)
        values = shift + scale * uniform(name, tuple(tensor.shape), 0)
        tensor.copy_(torch.from_numpy(values.astype("f4")))
    return model.double()


# ---- results ----

def record(name, model, x, result=lambda y: y, **more):
    fill(model)
    with torch.no_grad():
        wide = result(model(x.double() if x.is_floating_point() else x,
                            **more)).numpy()
        narrow = result(model.float()(x, **more)).numpy()
    error = max(np.linalg.norm(a - b) / np.linalg.norm(b)
                for a, b in zip(narrow, wide))
    apart = np.linalg.norm(wide[0] - wide[-1]) / np.linalg.norm(wide[0])
    print(f"{name}: {wide.shape}, deviation {wide.std():.3g}, "
          f"records apart by {apart:.2g}, "
          f"PyTorch's own f32 is off by {error:.2g}")
    np.save(f"predict_{name}.npy", wide)


def images(n, side=224):
    return torch.from_numpy(
        uniform("images", (n, 3, side, side), 0).astype("f4"))


def tokens(n, T, below):
    values = (bits("tokens", n * T, 0) >> np.uint64(40)) % np.uint64(below)
    return torch.from_numpy(values.astype("i8").reshape(n, T))


def record_results():
    record("resnet50", torchvision.models.resnet50(), images(2))
    record("vit_b_16", torchvision.models.vit_b_16(), images(2))
    config = transformers.GPT2Config(**SMALL_GPT2,
                                     attn_implementation="eager")
    record("gpt2_small", transformers.GPT2LMHeadModel(config),
           tokens(3, 16, 96), lambda y: y.logits)
    config = transformers.BertConfig(**SMALL_BERT, attn_implementation="eager")
    record("bert_small", transformers.BertForMaskedLM(config),
           tokens(3, 16, 96), lambda y: y.logits,
           token_type_ids=tokens(3, 16, 2))
    for name in ("densenet121", "mobilenet_v2", "squeezenet1_0", "googlenet"):
        record(name, real(name), images(1))
    record("inception_v3", real("inception_v3"), images(1, 299))


if __name__ == "__main__":
    record_names()
    record_results()
