"""WebShop (Yao et al., NeurIPS 2022, arXiv 2207.01206; princeton-nlp/WebShop, MIT) from its own data files."""
