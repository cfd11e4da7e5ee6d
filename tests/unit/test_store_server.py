"""The running store over real HTTP: isolation, determinism, hostile input, the control API, start and stop."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hindcast.actors.environments.store.evaluators import achieved_goals, evaluate
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.server import create_app, serve
from hindcast.actors.environments.store.session import MAX_FACTS
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import SiteSettings
from stories.store_visitor import TOKEN, Visitor, demonstrate, running_store

SETTINGS = SiteSettings()
TASKS = StoreTasks(SETTINGS)
SOON_S = 10.0
"""A stop takes a second; one that waits for its visitors to leave would take for ever."""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SETTINGS) as base_url:
        yield base_url


def visitor(store: str, family: str = "buy", seed: int = 1) -> Visitor:
    return Visitor(store, TASKS.task(family, seed))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_demonstrator_reaches_its_goal_and_hindsight_sees_it(store: str, family: str) -> None:
    for seed in range(8):
        task = TASKS.task(family, seed)
        evidence, actions, last = demonstrate(store, task)
        judgment = evaluate(task, evidence)
        assert judgment.reward == 1, (task.instruction, judgment.reason, actions)
        assert len(actions) <= task.max_steps - 2, "there is room for a mistake"
        goals = achieved_goals(evidence)
        hidden = family == "impossible" and task.goal["kind"] == "order"
        assert hidden or any(goal.goal == task.goal for goal in goals)
        assert all(1 <= goal.ordinal <= last.ordinal() + 1 for goal in goals)


def test_the_same_task_and_actions_give_the_same_bytes(store: str) -> None:
    task = TASKS.task("buy", 5)
    first = demonstrate(store, task)[2]
    visitor(store, "add_to_cart", 9).get("/cart")
    second = demonstrate(store, task)[2]
    with running_store(SETTINGS) as elsewhere:
        third = demonstrate(elsewhere, task)[2]
    assert first.journey == second.journey == third.journey
    assert len(set(first.journey)) > 4


def test_visits_do_not_see_each_other(store: str) -> None:
    one, other = visitor(store), visitor(store)
    plain = next(p for p in TASKS.catalogue.products if not p.colours and not p.sizes)
    one.post(f"/product/{plain.id}/cart", quantity=2)
    one.post(f"/product/{plain.id}/wish")
    one.post("/account/address", name="A B", street="1 X Street", city="Y")
    assert plain.title in (one.get("/cart"), one.text())[1]
    other.get("/cart")
    assert "The cart is empty." in other.text()
    assert other.record()["state"] == other.record()["opening"]
    assert one.record()["state"] != one.record()["opening"]


def test_every_page_carries_the_number_of_facts_so_far(store: str) -> None:
    visit = visitor(store)
    for address in (
        "/",
        "/search?q=lamp",
        "/product/3",
        "/product/3/reviews",
        "/cart",
        "/orders",
        "/account",
        "/nothing",
    ):
        visit.get(address)
        assert visit.ordinal() == len(visit.record()["journal"])
    assert visit.ordinal() == 9
    visit.post("/product/3/wish")
    assert visit.ordinal() == 11
    assert [fact["fact"] for fact in visit.record()["journal"][-2:]] == ["wished", "visited"]


def test_options_have_to_be_chosen(store: str) -> None:
    visit = visitor(store)
    item = next(p for p in TASKS.catalogue.products if p.colours and p.sizes)
    visit.post(f"/product/{item.id}/cart", quantity=1)
    assert "Choose a colour first." in visit.text()
    visit.post(f"/product/{item.id}/cart", colour=item.colours[0], quantity=1)
    assert "Choose a size first." in visit.text()
    assert [n["value"] for n in visit.read().nodes if n["text"] == "Colour"] == [item.colours[0]], (
        "the colour stays"
    )
    visit.post(f"/product/{item.id}/cart", colour="ultraviolet", size="small", quantity=1)
    assert "Choose a colour first." in visit.text()
    visit.post(f"/product/{item.id}/cart", colour=item.colours[0], size="small", quantity=99)
    assert "Choose a quantity" in visit.text()
    assert visit.record()["state"]["cart"] == []
    visit.post(f"/product/{item.id}/cart", colour=item.colours[0], size="small", quantity=3)
    assert visit.url == "/cart"
    assert visit.record()["state"]["cart"] == [
        {"product": item.id, "colour": item.colours[0], "size": "small", "quantity": 3}
    ]


def test_sorting_filters_and_paging_narrow_a_list(store: str) -> None:
    visit = visitor(store)
    visit.get("/search?q=steel&sort=price")
    shown = visit.record()["journal"][-1]["shown"]
    assert len(shown) == 8
    prices = [TASKS.catalogue[number].price_cents for number in shown]
    assert prices == sorted(prices)
    links = {n["text"]: visit.read().targets[n["id"]] for n in visit.read().nodes if n["kind"] == "link"}
    visit.get(links["Next page"])
    following = visit.record()["journal"][-1]
    assert following["page"] == 2
    assert not set(following["shown"]) & set(shown)
    visit.get(links["Only Kitchen"] + "&price=50")
    narrowed = [TASKS.catalogue[number] for number in visit.record()["journal"][-1]["shown"]]
    assert narrowed
    assert all(p.category == "Kitchen" and 2500 <= p.price_cents < 5000 for p in narrowed)
    visit.get("/search?q=steel&page=9999")
    assert visit.status == 200
    assert visit.record()["journal"][-1]["page"] > 2


def test_orders_can_be_cancelled_only_in_processing(store: str) -> None:
    visit = visitor(store, "cancel_order", 2)
    orders = visit.record()["opening"]["orders"]
    late = next(order["number"] for order in orders if order["status"] == "delivered")
    visit.post(f"/orders/{late}/cancel")
    assert "Only an order in processing can be cancelled." in visit.text()
    assert visit.record()["state"]["orders"] == orders


@pytest.mark.parametrize(
    "address",
    [
        '/search?q="lamp',
        "/search?q=lamp*+AND+(NEAR",
        "/search?q=%00%ff%fe%f0%9f%92%a9",
        "/search?q=%27%3B+DROP+TABLE+words%3B--",
        "/search?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        f"/search?q={'lamp+' * 2000}",
        "/search?q=lamp&sort=x&price=y&page=-3&category=%3Cb%3E",
        "/search?page=99999999999999999999999",
        "/category/%2e%2e",
        "/category/kitchen?noun=%3Cb%3E&page=0",
        "/product/0",
        f"/product/{'9' * 5000}",
        "/product/%c2%b2",
        "/product/-1",
        "/product/3/../../etc",
        "/product/3/base",
        "/product/3?note=<b>hacked</b>&colour=<b>",
        "/orders/99999999999",
        "/cart?note=%3Cscript%3E",
        "/%00",
        "/_control/sessions/none",
        "/_enter/none",
    ],
)
def test_hostile_addresses_give_worded_pages(store: str, address: str) -> None:
    visit = visitor(store)
    visit.get(address)
    assert visit.status in (200, 403, 404)
    assert visit.body
    assert b"<script>" not in visit.body
    assert b"<b>" not in visit.body
    assert visit.status == 403 or visit.read().title


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/product/3/cart", b"\xff\xfe=\x00&quantity=%00"),
        ("/product/3/cart", b"quantity=" + b"9" * 5000),
        ("/product/999999/cart", b"quantity=1"),
        ("/product/999999/wish", b""),
        ("/product/3/write", b"stars=6&text=x"),
        ("/product/3/write", b"stars=5&text=%20%20"),
        ("/cart/remove", b"product=1"),
        ("/cart/quantity", b"product=x&quantity=2"),
        ("/wishes/remove", b"product=abc"),
        ("/checkout", b""),
        ("/orders/1/cancel", b""),
        ("/account/address", b"name=&street=a&city=b"),
        ("/cart/remove", b"&".join([b"a=1"] * 3000)),
    ],
)
def test_hostile_forms_change_nothing(store: str, address: str, body: bytes) -> None:
    visit = visitor(store)
    visit.request("POST", address, body)
    assert visit.status in (200, 404)
    assert visit.read().title
    assert visit.record()["state"] == visit.record()["opening"]


def test_text_of_a_review_is_shown_as_text(store: str) -> None:
    visit = visitor(store)
    visit.post("/product/3/write", stars=5, text="<script>alert('x')</script> \u202e done & dusted")
    assert b"<script>" not in visit.body
    assert "you: <script>alert('x')</script>" in visit.text()


def test_too_large_a_form_is_refused_in_words(store: str) -> None:
    visit = visitor(store)
    visit.request("POST", "/product/3/write", b"stars=5&text=" + b"a" * 100_000)
    assert visit.status == 413
    assert "larger than 16384 bytes" in visit.body.decode()


def test_methods_that_nothing_takes_are_refused_in_words(store: str) -> None:
    visit = visitor(store)
    for method in ("PUT", "DELETE", "PATCH"):
        visit.request(method, "/cart")
        assert visit.status == 405
        assert b"does not take this kind of request" in visit.body


def test_without_a_visit_nothing_is_shown(store: str) -> None:
    stranger = Visitor(store, None)
    for address in ("/", "/cart", "/orders"):
        stranger.get(address)
        assert stranger.status == 403
        assert b"has ended or never began" in stranger.body
    stranger.cookie = "visit=guess"
    stranger.get("/")
    assert stranger.status == 403


def test_the_control_api_answers_to_its_token_alone(store: str) -> None:
    visit = visitor(store)
    task = b'{"task": {}}'
    for token in ("", "wrong", TOKEN + "x", TOKEN.upper()):
        for method, path, body in (
            ("POST", "/_control/sessions", task),
            ("GET", f"/_control/sessions/{visit.token}", None),
            ("DELETE", f"/_control/sessions/{visit.token}", None),
        ):
            assert "x-control-token" in visit.control(method, path, body, token)["error"]
            assert visit.status == 403
    visit.get(f"/_control/sessions/{visit.token}")
    assert visit.status == 403, "a page of the visit itself cannot read the record"
    visit.get("/")
    assert visit.status == 200, "nobody could end it"


def test_the_control_api_refuses_what_is_no_task_and_other_catalogues(store: str) -> None:
    visit = Visitor(store, None)
    for body in (b"", b"{", b'{"task": {}}', b'{"task": 3}', b"[]", b"\xff"):
        assert "not a task" in visit.control("POST", "/_control/sessions", body)["error"]
        assert visit.status == 400
    assert "larger than" in visit.control("POST", "/_control/sessions", b" " * 100_000)["error"]
    with pytest.raises(KeyError):
        Visitor(store, StoreTasks(SiteSettings(products=60)).task("buy", 1))


def test_an_ended_visit_is_over(store: str) -> None:
    visit = visitor(store)
    assert visit.control("DELETE", f"/_control/sessions/{visit.token}") == {"closed": True}
    assert visit.control("DELETE", f"/_control/sessions/{visit.token}") == {"closed": False}
    assert "no such session" in visit.control("GET", f"/_control/sessions/{visit.token}")["error"]
    visit.get("/")
    assert visit.status == 403


def test_an_endless_visit_ends(store: str) -> None:
    visit = visitor(store)
    for _ in range(MAX_FACTS):
        visit.get("/orders")
    assert visit.status == 429
    assert "too many pages" in visit.text()
    assert len(visit.record()["journal"]) == MAX_FACTS


def test_an_empty_control_token_is_refused() -> None:
    with pytest.raises(ValueError, match="control token"):
        create_app(SETTINGS, control_token="")


async def test_a_taken_port_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFailed, match=f"cannot listen on 127.0.0.1:{port}.*choose another"):
            await serve(SETTINGS, host="127.0.0.1", port=port, control_token=TOKEN)


async def test_it_stops_soon_when_cancelled_with_a_connection_open() -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(
            serve(SETTINGS, host="127.0.0.1", port=0, control_token=TOKEN, ready=address.set_result)
        )
        host, port = (await address).removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /_health HTTP/1.1\r\nhost: store\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        began = time.monotonic()
        serving.cancel()
        await asyncio.wait([serving])
        assert time.monotonic() - began < SOON_S
        writer.close()
    with pytest.raises(OSError, match=r"\[Errno"):
        await asyncio.open_connection(host, int(port))


def test_it_stops_soon_on_sigterm() -> None:
    program = (
        "import asyncio\n"
        "from hindcast.actors.environments.store.server import serve\n"
        "from hindcast.core.settings.schema import SiteSettings\n"
        "asyncio.run(serve(SiteSettings(), host='127.0.0.1', port=0, control_token='t',\n"
        "                  ready=lambda address: print(address, flush=True)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "."}
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:")
        visit = Visitor(address, None)
        visit.get("/_health")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert time.monotonic() - began < SOON_S
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
