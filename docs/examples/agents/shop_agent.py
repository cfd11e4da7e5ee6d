"""An agent with a browser of its own: it opens the shop in Playwright, asks a model through OpenAI's client, and acts on it."""

import json
import os
import re
import shutil
import sys
from urllib.request import Request, urlopen

from openai import OpenAI
from playwright.sync_api import Error, sync_playwright

READ = """() => {
  const lines = [`page ${document.title}`], marks = [];
  const tidy = (text) => (text || "").replace(/\\s+/g, " ").trim();
  let line = "", kind = "text";
  const flush = () => { if (tidy(line)) lines.push(`${kind} ${tidy(line)}`); line = ""; };
  const control = (element) => {
    flush();
    const { tagName: tag, type, value } = element;
    const label = tidy(element.ariaLabel || element.labels?.[0]?.textContent || element.placeholder);
    const name = { A: "link", BUTTON: "button", SELECT: "select", TEXTAREA: "textarea" }[tag]
      || (["radio", "checkbox"].includes(type) ? type : "input");
    const options = [...(element.options || [])].map((one) => one.text).filter((one) => one !== element.selectedOptions[0]?.text);
    const state = tag === "SELECT" ? [element.selectedOptions[0]?.text, ...options].join(" | ")
      : name === "radio" || name === "checkbox" ? (element.checked ? "on" : "off") : tag === "A" || tag === "BUTTON" ? "" : value;
    const shown = tag === "SELECT" || name === "textarea" ? tidy(label.replace(element.textContent, "")) : label;
    const text = tag === "A" || tag === "BUTTON" ? tidy(element.textContent) : shown;
    lines.push([name, text, state && `= ${state}`, `[${marks.push(element)}]`].filter(Boolean).join(" "));
    element.dataset.mark = marks.length;
  };
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) { line += node.data; return; }
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches("script, style")) return;
    if (node.matches("a[href], button, input:not([type=hidden]), select, textarea")) { control(node); return; }
    if (node.tagName === "LABEL" && node.control) { if (node.contains(node.control)) walk(node.control); return; }
    const cell = node.matches("td, th"), block = !cell && !node.matches("span, b, i, em, strong, small, dd");
    if (block) flush();
    if (node.matches("h1, h2, h3")) kind = "heading";
    node.childNodes.forEach(walk);
    if (cell && node.nextElementSibling) line = `${line.trimEnd()} | `;
    else if (node.tagName === "DT") line = `${line.trim()}: `;
    else if (block || node.tagName === "DD") flush();
    kind = "text";
  };
  walk(document.body);
  flush();
  return lines.join("\\n");
}"""
CALL = re.compile(
    r'(do|exit)\((?:action|message)="((?:[^"\\]|\\.)*)"(?:, argument="((?:[^"\\]|\\.)*)")?(?:, element="(\d+)")?\)'
)


def carry_out(page, action, argument, element):
    """Do what the model says; a call that the page does not allow changes nothing."""
    target = page.locator(f'[data-mark="{element}"]')
    try:
        match action:
            case "Click":
                target.click(timeout=2000)
            case "Type":
                target.fill(argument, timeout=2000)
            case "Search":
                target.fill(argument, timeout=2000)
                target.press("Enter")
            case "Select Dropdown Option":
                target.select_option(label=argument, timeout=2000)
        page.wait_for_load_state()
    except Error as refused:
        sys.stderr.write(f"{action} {element}: {str(refused).splitlines()[0]}\n")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium")
    )
    page = browser.new_page()
    page.goto(os.environ["HINDCAST_START_URL"])
    model, messages = OpenAI(max_retries=0), []
    asked = f"Task Instruction: {os.environ['HINDCAST_INSTRUCTION']}\n\n"
    for turn in range(12):
        messages.append({"role": "user", "content": f"{asked}Round {turn}\n\n{page.evaluate(READ)}"})
        answer = (
            model.chat.completions.create(model="policy", messages=messages).choices[0].message.content or ""
        )
        # the shipped policy reads the newest page alone; earlier ones are a placeholder
        messages[-1]["content"] = f"{asked}Round {turn}\n\n** Simplified html **"
        messages.append({"role": "assistant", "content": answer})
        asked = ""
        found = CALL.search(answer)
        if found is None or found[1] == "exit":
            break
        carry_out(page, found[2], found[3] or "", found[4])
    if found is not None and found[1] == "exit":
        said = json.dumps({"answer": found[2]}).encode()
        urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/reward", data=said, method="POST")).close()
    browser.close()
