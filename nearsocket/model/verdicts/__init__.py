"""Verdicts that several checks, commands and deploys share: values in, findings out."""
