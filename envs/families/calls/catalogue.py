"""The functions of generated problems: names, arguments, and the sentences that ask for a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Drawn = tuple[Any, str]
"""An argument's value, and the words that ask for that value."""


class CatalogueArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a function in the catalogue."""

    name: str
    schema: dict[str, Any]
    draw: Callable[[random.Random], Drawn]
    phrase: str = ""
    """How an optional argument is asked for, with {} for the value; empty if the argument is
    required.
    """
    default: Any = None

    @property
    def optional(self) -> bool:
        """Whether a call may leave this argument out."""
        return bool(self.phrase)


class CatalogueFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the catalogue that a generated problem may offer or ask for."""

    name: str
    description: str
    slots: tuple[CatalogueArgument, ...]
    requests: tuple[str, ...]
    """Sentences that ask for a call, with {argument} for each required argument."""


def one_of(*values: str) -> Callable[[random.Random], Drawn]:
    """Draw a text from `values`; the request quotes the text verbatim."""

    def draw(rng: random.Random) -> Drawn:
        value = rng.choice(values)
        return value, value

    return draw


def number(low: int, high: int, step: int = 1) -> Callable[[random.Random], Drawn]:
    """Return a draw of a whole number from `low` to `high`, both included, in steps of `step`."""

    def draw(rng: random.Random) -> Drawn:
        value = rng.randrange(low, high + 1, step)
        return value, str(value)

    return draw


def amount(low: int, high: int) -> Callable[[random.Random], Drawn]:
    """Return a draw of a number from `low` to `high` with a single digit after the decimal
    point.
    """

    def draw(rng: random.Random) -> Drawn:
        value = rng.randint(low * 10, high * 10) / 10
        return value, f"{value:.1f}"

    return draw


def some(values: Sequence[str], low: int, high: int) -> Callable[[random.Random], Drawn]:
    """Return a draw of a list of `low` to `high` different values."""

    def draw(rng: random.Random) -> Drawn:
        sample = rng.sample(list(values), rng.randint(low, high))
        return sample, f"{', '.join(sample[:-1])} and {sample[-1]}" if sample[1:] else sample[0]

    return draw


def clock(rng: random.Random) -> Drawn:
    """Draw a time of day, as HH:MM."""
    value = f"{rng.randint(0, 23):02d}:{rng.randrange(0, 60, 5):02d}"
    return value, value


def code(rng: random.Random) -> Drawn:
    """Draw a parcel number: two letters and six digits."""
    letters = "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=2))
    value = f"{letters}{rng.randint(10**5, 10**6 - 1)}"
    return value, value


def place(rng: random.Random) -> Drawn:
    """Draw a street in a city, as an object with the members `city` and `street`."""
    city, street = rng.choice(CITIES), f"{rng.randint(1, 99)} {rng.choice(STREETS)}"
    return {"city": [city], "street": [street]}, f"{street} in {city}"


def switched(value: bool) -> Callable[[random.Random], Drawn]:
    """Return a draw that always gives `value` and no words, because the slot's phrase alone asks
    for it.
    """
    return lambda rng: (value, "")


PEOPLE = ("Ada", "Bruno", "Chidi", "Dilara", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas")
CITIES = ("Bergen", "Cork", "Graz", "Lodz", "Porto", "Turin", "Utrecht", "Varna", "Vilnius")
STREETS = ("Mill Lane", "Harbour Road", "Station Street", "Elm Walk", "Castle Hill")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONEY = ("EUR", "USD", "GBP", "JPY", "CHF", "NOK")
ROOMS = ("kitchen", "bedroom", "office", "hall", "bathroom")
COLOURS = ("red", "blue", "green", "amber", "white", "violet")
SYMBOLS = ("AXN", "BRO", "CEL", "DUM", "ELK", "FYR", "GOL")
TONGUES = ("Danish", "Polish", "Greek", "Turkish", "Finnish", "Welsh")
SENTENCES = (
    "the train is late", "dinner is ready", "please bring the keys", "the meeting has moved",
    "thank you for the flowers", "the parcel has come", "call me when you can",
)  # fmt: skip
TITLES = ("choir practice", "budget review", "chess club", "parents evening", "book circle")
FILES = ("harbour.png", "portrait.jpg", "logo.png", "map_old.jpg", "cat.webp")
TABLES = ("Lindenhof", "Casa Nova", "The Blue Hen", "Olive Yard", "Fjord and Fork")

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
DECIMAL = {"type": "number"}
SWITCH = {"type": "boolean"}
ORDERED = "in the order of the request"


def choice(values: Sequence[str], described: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a string out of `values`."""
    schema: dict[str, Any] = {"type": "string", "enum": list(values)}
    return schema | ({"description": described} if described else {})


def said(schema: dict[str, Any], described: str) -> dict[str, Any]:
    """Return `schema` with a description."""
    return {**schema, "description": described}


def slot(
    name: str, schema: dict[str, Any], draw: Callable[[random.Random], Drawn]
) -> CatalogueArgument:
    """Return a slot for a required argument."""
    return CatalogueArgument(name=name, schema=schema, draw=draw)


_DAY = choice(DAYS, "day of the week")
_TIME = said(TEXT, "time of day, as HH:MM")
_ADDRESS = {
    "type": "object",
    "properties": {"city": TEXT, "street": said(TEXT, "house number and street")},
    "required": ["city", "street"],
}

FUNCTIONS: tuple[CatalogueFunction, ...] = (
    CatalogueFunction(
        name="reserve_table",
        description="Reserve a table at a restaurant.",
        slots=(
            slot("restaurant", TEXT, one_of(*TABLES)),
            slot("guests", WHOLE, number(1, 12)),
            slot("time", _TIME, clock),
            CatalogueArgument(
                name="outdoors",
                schema=said(SWITCH, "on the terrace"),
                draw=switched(True),
                phrase=", outdoors",
                default=False,
            ),
        ),
        requests=(
            "Get me a table for {guests} at {restaurant} at {time}",
            "At {time} we would like to eat at {restaurant}, {guests} of us; reserve that",
        ),
    ),
    CatalogueFunction(
        name="reserve_room",
        description="Reserve a meeting room.",
        slots=(
            slot("seats", WHOLE, number(2, 30)),
            slot("day", _DAY, one_of(*DAYS)),
            slot("time", _TIME, clock),
        ),
        requests=("Reserve a meeting room with {seats} seats on {day} at {time}",),
    ),
    CatalogueFunction(
        name="convert_money",
        description="Convert an amount between currencies.",
        slots=(
            slot("amount", DECIMAL, amount(1, 900)),
            slot("source", choice(MONEY), one_of(*MONEY[:3])),
            slot("target", choice(MONEY), one_of(*MONEY[3:])),
        ),
        requests=(
            "How much is {amount} {source} in {target}?",
            "Convert {amount} {source} to {target}",
        ),
    ),
    CatalogueFunction(
        name="set_alarm",
        description="Set an alarm for a time of day.",
        slots=(
            slot("hour", said(WHOLE, "0 to 23"), number(0, 23)),
            slot("minute", said(WHOLE, "0 to 59"), number(10, 59)),
            CatalogueArgument(
                name="label",
                schema=said(TEXT, "shown when it rings"),
                draw=one_of(*TITLES),
                phrase=' with the label "{}"',
                default="",
            ),
        ),
        requests=("Wake me at {hour}:{minute}", "Set an alarm for {hour}:{minute}"),
    ),
    CatalogueFunction(
        name="set_timer",
        description="Start a countdown.",
        slots=(slot("minutes", WHOLE, number(2, 90)),),
        requests=("Start a countdown of {minutes} minutes", "Time {minutes} minutes for me"),
    ),
    CatalogueFunction(
        name="send_message",
        description="Send a text message to a person.",
        slots=(slot("recipient", TEXT, one_of(*PEOPLE)), slot("text", TEXT, one_of(*SENTENCES))),
        requests=('Text {recipient} "{text}"', 'Send {recipient} a message that says "{text}"'),
    ),
    CatalogueFunction(
        name="send_email",
        description="Send an e-mail to a person.",
        slots=(
            slot("recipient", TEXT, one_of(*PEOPLE)),
            slot("subject", TEXT, one_of(*TITLES)),
            slot("body", TEXT, one_of(*SENTENCES)),
        ),
        requests=('E-mail {recipient} about "{subject}" and write "{body}"',),
    ),
    CatalogueFunction(
        name="find_trains",
        description="Look up trains between two cities.",
        slots=(
            slot("origin", TEXT, one_of(*CITIES[:5])),
            slot("destination", TEXT, one_of(*CITIES[5:])),
            slot("day", _DAY, one_of(*DAYS)),
            CatalogueArgument(
                name="travel_class",
                schema=choice(("first", "second")),
                draw=one_of("first"),
                phrase=", {} class",
                default="second",
            ),
        ),
        requests=(
            "Which trains go from {origin} to {destination} on {day}?",
            "On {day} I need a train from {origin} to {destination}",
        ),
    ),
    CatalogueFunction(
        name="find_flights",
        description="Look up flights between two cities.",
        slots=(
            slot("origin", TEXT, one_of(*CITIES[:5])),
            slot("destination", TEXT, one_of(*CITIES[5:])),
            slot("most_stops", WHOLE, number(0, 2)),
        ),
        requests=("Find flights from {origin} to {destination} with at most {most_stops} stops",),
    ),
    CatalogueFunction(
        name="create_event",
        description="Put an event into the calendar.",
        slots=(
            slot("title", TEXT, one_of(*TITLES)),
            slot("day", _DAY, one_of(*DAYS)),
            slot("place", _ADDRESS, place),
        ),
        requests=('Put "{title}" into my calendar for {day}, at {place}',),
    ),
    CatalogueFunction(
        name="resize_image",
        description="Change the size of an image file.",
        slots=(
            slot("file", TEXT, one_of(*FILES)),
            slot("width", said(WHOLE, "in pixels"), number(100, 4000, 20)),
            slot("height", said(WHOLE, "in pixels"), number(100, 4000, 20)),
            CatalogueArgument(
                name="keep_ratio",
                schema=said(SWITCH, "whether width and height keep their ratio"),
                draw=switched(False),
                phrase=", and do not keep the ratio",
                default=True,
            ),
        ),
        requests=("Make {file} {width} pixels wide and {height} high",),
    ),
    CatalogueFunction(
        name="loan_payment",
        description="Work out the monthly payment of a loan.",
        slots=(
            slot("principal", said(WHOLE, "borrowed"), number(5_000, 400_000, 500)),
            slot("rate", said(DECIMAL, "per cent a year"), amount(1, 9)),
            slot("years", WHOLE, number(2, 30)),
        ),
        requests=(
            "What does a loan of {principal} over {years} years at {rate} per cent cost a month?",
        ),
    ),
    CatalogueFunction(
        name="set_light",
        description="Switch the light of a room.",
        slots=(
            slot("room", choice(ROOMS), one_of(*ROOMS)),
            slot("brightness", said(WHOLE, "in per cent"), number(5, 100, 5)),
            CatalogueArgument(
                name="colour",
                schema=choice(COLOURS),
                draw=one_of(*COLOURS[:4]),
                phrase=", in {}",
                default="white",
            ),
        ),
        requests=(
            "Set the light in the {room} to {brightness} per cent",
            "I want {brightness} per cent light in the {room}",
        ),
    ),
    CatalogueFunction(
        name="track_parcel",
        description="Say where a parcel is.",
        slots=(slot("number", TEXT, code),),
        requests=("Where is my parcel {number}?", "Track {number}"),
    ),
    CatalogueFunction(
        name="compare_stocks",
        description="Compare the prices of stocks over some days.",
        slots=(
            slot(
                "symbols",
                {"type": "array", "items": TEXT, "description": ORDERED},
                some(SYMBOLS, 2, 4),
            ),
            slot("days", WHOLE, number(5, 120)),
        ),
        requests=("Compare {symbols} over the last {days} days",),
    ),
    CatalogueFunction(
        name="remind",
        description="Remind of something at several times.",
        slots=(
            slot("text", TEXT, one_of(*SENTENCES)),
            slot(
                "days", {"type": "array", "items": _DAY, "description": ORDERED}, some(DAYS, 1, 3)
            ),
        ),
        requests=('Remind me on {days} that "{text}"',),
    ),
    CatalogueFunction(
        name="translate",
        description="Translate a text.",
        slots=(
            slot("text", TEXT, one_of(*SENTENCES)),
            slot("language", choice(TONGUES), one_of(*TONGUES)),
        ),
        requests=('How do you say "{text}" in {language}?', 'Put "{text}" into {language}'),
    ),
)
