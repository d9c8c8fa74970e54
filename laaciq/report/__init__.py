"""An `Evaluation` for people: one HTML file that works offline, or Markdown for a model card."""

from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report

__all__ = ["html_report", "markdown_report"]
