"""Records what PyTorch computes for the models of this folder.

    python3 record.py DNNC [MODEL ...]      in this folder

Needs torch 2.15, torchvision 0.29 and numpy; the results are kept, so the tests
need neither.  Written: MODEL.csv, the data, and MODEL.safetensors (recorder.py).
"""
import sys

import torch

import images, language, operators, recurrent, towers  # noqa: F401
from recorder import SPECS, record, write_rows


def main():
    torch.set_num_threads(1)
    for name, spec in SPECS.items():
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            write_rows(spec)
            record(sys.argv[1], spec)


main()
