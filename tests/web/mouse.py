"""A real mouse over the pages: moves, clicks, drags and the wheel, at shares of the width and height of an element."""

from __future__ import annotations

from typing import Any

from .conftest import Site

#: a place in an element: shares of its width and height, from the upper left
Place = tuple[float, float]


def chart(label: str) -> str:
    """Selector of the chart with a label."""
    return f'main .chart[aria-label="{label}"]'


def seen(site: Site, selector: str) -> Any:
    """The element, scrolled to where the mouse can reach it, once it is drawn and rests."""
    site.until(
        "return document.querySelector(arguments[0])?.getBoundingClientRect().height > 0", f"{selector} is there", selector
    )
    site.settle()
    element = site.driver.find_element("css selector", selector)
    site.script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def _offset(element: Any, place: Place) -> tuple[int, int]:
    """From the middle of an element, from where the driver counts."""
    size = element.size
    return round((place[0] - 0.5) * size["width"]), round((place[1] - 0.5) * size["height"])


def _actions(site: Site) -> Any:
    from selenium.webdriver import ActionChains

    return ActionChains(site.driver, duration=50)


def click(site: Site, selector: str, place: Place = (0.5, 0.5)) -> None:
    """Move to a place and click."""
    element = seen(site, selector)
    _actions(site).move_to_element_with_offset(element, *_offset(element, place)).click().perform()


def hover(site: Site, selector: str, place: Place) -> None:
    """Move to a place and rest there."""
    element = seen(site, selector)
    _actions(site).move_to_element_with_offset(element, *_offset(element, place)).perform()


def double_click(site: Site, selector: str, place: Place) -> None:
    """Move to a place and click twice."""
    element = seen(site, selector)
    _actions(site).move_to_element_with_offset(element, *_offset(element, place)).double_click().perform()


def drag(site: Site, selector: str, start: Place, end: Place, *, key: str | None = None) -> None:
    """Press at one place and let go at another, with a key held down if one is named."""
    element = seen(site, selector)
    (x, y), (to_x, to_y) = _offset(element, start), _offset(element, end)
    actions = _actions(site)
    if key is not None:
        actions.key_down(key)
    actions.move_to_element_with_offset(element, x, y).click_and_hold()
    # in several moves, as a hand does it
    for part in (1, 2, 3, 4):
        actions.move_to_element_with_offset(element, x + (to_x - x) * part // 4, y + (to_y - y) * part // 4)
    actions.release()
    if key is not None:
        actions.key_up(key)
    actions.perform()


def is_over(site: Site, selector: str, place: Place) -> bool:
    """Move the mouse over a chart that is in sight; whether it shows there that something can be clicked."""
    x, y = _in_window(site, site.driver.find_element("css selector", selector), place)
    site.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
    return bool(
        site.script("return getComputedStyle(document.elementFromPoint(arguments[0], arguments[1])).cursor === 'pointer'", x, y)
    )


def _in_window(site: Site, element: Any, place: Place) -> tuple[int, int]:
    box = site.script(
        "const box = arguments[0].getBoundingClientRect(); return [box.left, box.top, box.width, box.height]", element
    )
    return round(box[0] + place[0] * box[2]), round(box[1] + place[1] * box[3])


def wheel(site: Site, selector: str, place: Place, delta: int) -> None:
    """Turn the wheel over a place; negative is away from the user."""
    x, y = _in_window(site, seen(site, selector), place)
    site.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
    event = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta}
    site.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
