"""What a person should hear about: of a system's processes, of a run's success, mismatch, lag and stillness."""
