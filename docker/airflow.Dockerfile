# Airflow with airflow-ett. EXTRAS=airflow,postgres is all that an Airflow on a cluster needs; add
# torch where the trainings run beside it (local_detached) or models are published in the worker.
ARG PYTHON_VERSION=3.11
FROM python:${PYTHON_VERSION}-slim-bookworm

ARG EXTRAS=airflow,postgres
# torch.compile builds its CPU kernels with a C++ compiler.
RUN case ",${EXTRAS}," in *,torch,*) \
      apt-get update \
      && apt-get install --yes --no-install-recommends g++ \
      && rm -rf /var/lib/apt/lists/* ;; \
    esac

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY airflow_ett airflow_ett
COPY dags dags
RUN pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

ENV AIRFLOW_HOME=/opt/airflow
RUN useradd --uid 50000 --gid 0 --home-dir /opt/airflow --create-home airflow \
    && mkdir -p /opt/airflow/logs /ett \
    && cp -r dags /opt/airflow/dags \
    && chown -R airflow:0 /opt/airflow /ett
WORKDIR /opt/airflow
USER airflow
ENTRYPOINT ["airflow"]
