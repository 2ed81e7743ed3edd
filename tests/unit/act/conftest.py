from __future__ import annotations

import os
import tempfile

# Airflow writes its settings to this folder when it is imported; without it, to the home of whoever runs the tests.
if "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.TemporaryDirectory(prefix="spillway-airflow-")
    os.environ["AIRFLOW_HOME"] = _home.name
