"""SQL over named relations that keeps Spark's cache of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Queries:
    """Runs SQL queries in which ``{name}`` stands for a relation.

    Spark's own way, ``spark.sql(text, name=frame)``, makes views and drops them after each query; and dropping a view
    of a cached relation drops its cache, so that captures would be read again for every query. Here the views last as
    long as this object does, under names that no one else uses. A session of Spark Connect looks names up when rows are
    asked for; there Spark's own way is taken.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._prefix = f"kproto_{uuid.uuid4().hex}"
        self._is_remote = getattr(spark, "sparkContext", None) is None
        self._frames: dict[str, DataFrame] = {}
        self._views: list[str] = []
        self._by_name: dict[str, str] = {}

    def add(self, **frames: DataFrame) -> None:
        """Name relations; a name that is used again replaces the earlier relation."""
        if self._is_remote:
            self._frames |= frames
            return
        for name, frame in frames.items():
            view = f"{self._prefix}_{len(self._views)}_{name}"
            frame.createTempView(view)
            self._views.append(view)
            self._by_name[name] = view

    def __call__(self, text: str, **frames: DataFrame) -> DataFrame:
        """Run a query over the relations named so far and ``frames``."""
        self.add(**frames)
        if self._is_remote:
            return self.spark.sql(text, args=None, **self._frames)
        return self.spark.sql(text.format_map(self._by_name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for view in self._views:
            self.spark.catalog.dropTempView(view)
