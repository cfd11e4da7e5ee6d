"""The web page of a home's runs, served from their read models, logs and blobs."""
