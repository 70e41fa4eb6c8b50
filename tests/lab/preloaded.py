"""Imported by the process that others are forked from: loads all that a run will import or have compiled."""

import torch

import smgopt
from smgopt.lab import train

torch.set_num_threads(1)  # a pool of threads would not survive the fork
y = smgopt.ResNet(2, 2, 2, 2)(torch.ones(2, 2))
y.sum().backward()
with torch.no_grad():
    smgopt.ResNet(2, 2, 2, 2)(torch.ones(2, 2))
torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])

run = train.run
