"""Renderers: findings in, text out. One file a renderer."""
