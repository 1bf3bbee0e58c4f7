"""``kproto.tables`` on PySpark, and what is relational: captures -> Parquet tables -> a summary.

    with spark_session() as spark:
        analyze(spark, ["control.pcap"], OutputDirectory(Path("tables")))

Needs the extra ``pipeline`` (pyspark, pyarrow) and Java 17 or newer.
"""

from __future__ import annotations

from kproto.pipeline.job import BadInput, Run, analyze
from kproto.pipeline.output import OutputDirectory
from kproto.pipeline.selection import Selection
from kproto.pipeline.session import check_java, spark_session
from kproto.pipeline.summary import summarize

__all__ = ["BadInput", "OutputDirectory", "Run", "Selection", "analyze", "check_java", "spark_session", "summarize"]
