"""A training step of charlstm in PyTorch eager, the way a careful user writes
it: nn.LSTM, Adam in one kernel, gradient clipping, denormals flushed.

    python3 torch_lstm.py charlstm       asked and answering as torch_step.py
"""
import torch
import torch.nn.functional as F
from torch import nn

from torch_step import answer, stream

B, T, V, E, C = 32, 64, 128, 32, 192


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, E)
        self.lstm = nn.LSTM(E, C, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(C, V)

    def forward(self, x, y):
        h, _ = self.lstm(self.emb(x))
        logits = self.out(self.drop(h))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def main():
    torch.manual_seed(1)
    data = stream("data/inputs/names.txt")
    model = CharLSTM()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, fused=True)
    answer(model, data[:len(data) * 9 // 10], B, T, optimizer, 1e-2, 50)


main()
