"""Answers questions from the tables that ``kproto analyze`` wrote, with DuckDB.

    with open_tables(Path("tables")) as sql:
        sql.sql("SELECT * FROM leadership WHERE topic = 'orders'").df()
        ask(sql, "leader", Filters(topics=("orders",)))

Needs the extra ``query`` (duckdb).
"""

from __future__ import annotations

from kproto.query.questions import QUESTIONS, Answer, Question, ask, ask_sql
from kproto.query.views import open_tables

__all__ = ["QUESTIONS", "Answer", "Question", "ask", "ask_sql", "open_tables"]
