"""Consumers to attach and to copy from: `hindcast attach app.examples.success_watcher:consumer`. See docs/attach.md."""
