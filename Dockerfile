# One image for Spark's master and workers, Airflow, the agents and the command; docker-compose.yml says what each container is.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

# Below Debian's path by architecture; Spark and the health of the image want one name for it.
RUN ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java
ENV JAVA_HOME=/opt/java \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PYTHONPATH=/opt/spillway/plugins:/opt/spillway \
    PYSPARK_PYTHON=/usr/local/bin/python \
    PYSPARK_DRIVER_PYTHON=/usr/local/bin/python \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark \
    SPARK_NO_DAEMONIZE=1 \
    SPARK_CONF_DIR=/opt/spillway/container/spark \
    SPILLWAY_JARS=/opt/jars
ENV PATH=$SPARK_HOME/bin:$PATH

# Every package by the hash in the lock, byte-compiled; pyspark and pyspark-client own the same files, so look that both are whole.
COPY requirements.txt /opt/requirements.txt
RUN pip install --no-cache-dir --require-hashes --no-deps --compile -r /opt/requirements.txt \
    && python -c "import pathlib, pyspark; assert (pathlib.Path(pyspark.__file__).parent / 'jars').is_dir(), 'pyspark has no jars'" \
    && rm /opt/requirements.txt

WORKDIR /opt/spillway
COPY stack.toml ./
COPY plugins plugins
# The connector jars of stack.toml, refused unless each has the sha256 of jars.sha256: the code that fetches them for the embedded mode.
RUN SPILLWAY_CACHE=/opt/cache python -c "import pathlib, shutil; from spillway.embedded import jars; shutil.copytree(jars.ensure('connector', pathlib.Path('/opt/java/bin/java'), print), '/opt/jars')" \
    && rm -rf /opt/cache

COPY spark_jobs spark_jobs
COPY dags dags
COPY sql sql
COPY pipelines pipelines
COPY scenarios scenarios
COPY container container
RUN python -m compileall -q plugins spark_jobs dags container \
    && install -m 755 container/spillway /usr/local/bin/spillway \
    && useradd --system --uid 10001 --home-dir /var/lib/spillway --create-home spillway \
    && install -d -o spillway -g spillway /var/lib/spillway/checkpoints /var/lib/spillway/work /var/lib/spillway/local /var/lib/spillway/airflow

USER spillway
CMD ["spillway", "--help"]
