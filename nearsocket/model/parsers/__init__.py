"""Parsers, one a source: text in, frozen dataclasses out. They know the formats and judge nothing."""
