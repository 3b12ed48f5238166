"""Applies the patch kit to a folder, verifies images and containers, builds the image: with docker or podman, on the host."""
