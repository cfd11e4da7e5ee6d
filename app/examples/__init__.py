"""Consumers to attach and to copy from: `hindcast attach hindcast.app.examples.success_watcher:consumer`. See docs/attach.md."""
