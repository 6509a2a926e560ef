# What a cluster's nodes run: the trainer library and PyTorch, no Airflow, no TorchX.
ARG PYTHON_VERSION=3.11
FROM python:${PYTHON_VERSION}-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY airflow_ett airflow_ett
COPY dags dags
RUN pip install --no-cache-dir --constraint constraints.txt ".[torch]"

RUN useradd --uid 50000 --gid 0 --create-home trainer
WORKDIR /home/trainer
USER trainer
CMD ["python"]
