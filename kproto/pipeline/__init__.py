"""``kproto.tables`` on PySpark: captures -> Parquet tables.

    with spark_session() as spark:
        analyze(spark, ["control.pcap"], OutputDirectory(Path("tables")))

Needs the extra ``pipeline`` (pyspark, pyarrow) and Java 17 or newer.
"""

from __future__ import annotations

from kproto.capture import BadInput
from kproto.pipeline.cluster import check_workers, is_cluster
from kproto.pipeline.derived import derived_table, read_table, verdicts_of
from kproto.pipeline.frames import read_frames, requests_of, states_of
from kproto.pipeline.job import Run, analyze, unchanged
from kproto.pipeline.output import OutputDirectory
from kproto.pipeline.session import check_java, spark_session
from kproto.pipeline.streaming import follow, stream_frames

__all__ = [
    "BadInput",
    "OutputDirectory",
    "Run",
    "analyze",
    "check_java",
    "check_workers",
    "derived_table",
    "follow",
    "is_cluster",
    "read_frames",
    "read_table",
    "requests_of",
    "spark_session",
    "states_of",
    "stream_frames",
    "unchanged",
    "verdicts_of",
]
