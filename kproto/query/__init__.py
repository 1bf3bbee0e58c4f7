"""Answers questions from the tables that ``kproto analyze`` wrote, with DuckDB.

    with open_tables(kproto.tables.read("control.pcap")) as sql:  # or open_tables("tables"), as analyze wrote them
        ask(sql, "leader", Filters(topics=("orders",))).rows
        sql.table("leadership").to_arrow_table()  # each derived table of ``kproto tables``, as Arrow
        sql.sql("SELECT * FROM isr_events WHERE topic = 'orders'").df()

Needs the extra ``query`` (duckdb).
"""

from __future__ import annotations

from kproto.query.isr_requests import isr_requests
from kproto.query.questions import QUESTIONS, Answer, Question, ask, ask_sql
from kproto.query.views import open_tables

__all__ = ["QUESTIONS", "Answer", "Question", "ask", "ask_sql", "isr_requests", "open_tables"]
