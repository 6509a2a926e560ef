"""A small training. The five lines ending in ``# +`` are those to add to a loop of one's own."""

import torch

from airflow_ett.trainer import Session  # +

SIZE = 64
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dataset = torch.randn(4096, 8)

with Session() as ett:  # +
    start = ett.checkpointer(model=model, optimizer=optimizer).restore()  # +
    batches = (dataset[at : at + SIZE] for at in range(start, len(dataset), SIZE))
    for number, batch in enumerate(ett.track(batches, cursor=start), 1):  # +
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ett.step(number * SIZE)  # +
