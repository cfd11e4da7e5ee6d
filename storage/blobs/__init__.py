"""Blobs named by their digest: in a folder, in a bucket, and how long pages are kept."""
