"""A small training. Lines ending in ``# +`` are those to add to a loop of one's own."""

import torch

from airflow_ett.trainer import Session  # +

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dataset = torch.randn(4096, 8)

with Session() as ett:  # +
    saver = ett.checkpointer(model=model, optimizer=optimizer, every_s=900)  # +
    start = done = saver.restore()  # +
    batches = (dataset[at : at + 64] for at in range(start, len(dataset), 64))  # +
    for batch in ett.track(batches, cursor=start):  # +
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += len(batch)  # +
        ett.step(done - start)  # +
