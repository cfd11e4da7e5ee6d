"""What an agent of WebRL is told and answers."""

ANSWERS = (
    '# Element: the \'Sales\' menu item\ndo(action="Click", element="2")',
    'do(action="Scroll Down")',
    '# Note: $12.90\nexit(message="$12.90")',
)
INSTRUCTION = "Find the price of the brass lamp."
