"""Settings of WebShop, part of the section `sites`."""

from typing import Literal

from hindcast.core.settings.section import Count, Section


class WebshopSettings(Section):
    """WebShop's data or server."""

    webshop_items: str = ""
    """File of WebShop's products, `items_….json` or `.json.gz`; empty: the environment `webshop` does not
    use data files (docs/webshop.md)."""
    webshop_instructions: str = ""
    """File of the products' attributes and generated instructions, `items_ins_v2_….json` or `.json.gz`."""
    webshop_human: str = ""
    """File of instructions written by people, `items_human_ins.json` or `.json.gz`; empty: only generated ones."""
    webshop_mode: Literal["pages", "text"] = "pages"
    """`pages`: WebShop in a browser; `text`: the same pages as text without a browser, for text agents."""
    webshop_option_match: Literal["released", "values"] = "released"
    """How the reward compares the options of synthetic goals: `released` compares the chosen value with the text of
    WebShop's (name, value) pair, as the released code does; `values` compares values, reduced to their color. Goals
    written by people always compare values."""
    webshop_show_attributes: bool = False
    """Whether a product's page links to its attributes (upstream's `--attrs`)."""
    webshop_url: str = ""
    """Address of an original WebShop server to use instead of data files, as `http://127.0.0.1:3000`."""
    webshop_url_goals: Count = 12_087
    """Number of goals of that server; the default is that of the released human goals."""
