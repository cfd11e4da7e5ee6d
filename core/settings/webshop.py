"""The settings of WebShop, part of the section `sites`."""

from typing import Literal

from hindcast.core.settings.section import Count, Section


class WebshopSettings(Section):
    """Where WebShop's data or its server are."""

    webshop_items: str = ""
    """WebShop's products, `items_….json` or `.json.gz`; empty: there is no environment `webshop` from data
    (docs/webshop.md)."""
    webshop_instructions: str = ""
    """Their attributes and generated instructions, `items_ins_v2_….json` or `.json.gz`."""
    webshop_human: str = ""
    """Instructions written by people, `items_human_ins.json` or `.json.gz`; empty: generated ones alone."""
    webshop_mode: Literal["pages", "text"] = "pages"
    """Whether WebShop is pages in a browser, or the same places without one, for text agents."""
    webshop_option_match: Literal["released", "values"] = "released"
    """How the reward compares the options of synthetic goals: `released` compares the chosen value with the text of
    WebShop's (name, value) pair, as the released code does; `values` compares values, reduced to their color. Goals
    written by people always compare values."""
    webshop_show_attributes: bool = False
    """Whether a product's page leads to its attributes (upstream's `--attrs`)."""
    webshop_url: str = ""
    """A running server of the original WebShop to play on instead of data of one's own, as `http://127.0.0.1:3000`."""
    webshop_url_goals: Count = 12_087
    """How many goals that server has; the released human ones by default."""
