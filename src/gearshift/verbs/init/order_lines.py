"""A small task for language models: read reference, date and sum out of a noisy line about an order.

The answer to `pls chk ordr kx-4821 of 3 Mar 25, EUR 1,204.50` is `KX4821 2025-03-03 1204.50`.
"""

import random
from dataclasses import dataclass

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
GREETINGS = ("", "hi, ", "hello ", "dear all, ", "pls chk ", "re ", "fwd: ")
ORDERS = ("order", "ord", "ref", "po", "no.", "#", "purchase")
DATES = ("of", "from", "dtd", "on", "placed")
SUMS = ("total", "ttl", "sum", "amt", "for", "eur", "usd", "worth")
ENDINGS = ("", " thx", " asap", " pls", " regards", ".", "!!")


@dataclass(frozen=True, slots=True)
class OrderLine:
    text: str
    answer: str


def order_line(generator: random.Random) -> OrderLine:
    letters = "".join(generator.choices(LETTERS, k=2))
    number = generator.randrange(1000, 10_000)
    day, month, year = generator.randrange(1, 29), generator.randrange(12), generator.randrange(2020, 2027)
    cents = int(10 ** generator.uniform(2, 6.5))
    parts = [
        f"{generator.choice(ORDERS)} {_reference(letters, number, generator)}",
        f"{generator.choice(DATES)} {_date(day, month, year, generator)}",
        f"{generator.choice(SUMS)} {_sum(cents, generator)}",
    ]
    if generator.random() < 0.3:
        generator.shuffle(parts)
    text = generator.choice(GREETINGS) + generator.choice((" ", ", ")).join(parts) + generator.choice(ENDINGS)
    answer = f"{letters}{number} {year}-{month + 1:02}-{day:02} {cents // 100}.{cents % 100:02}"
    return OrderLine(_with_noise(text, generator), answer)


def order_lines(count: int, seed: int) -> list[OrderLine]:
    generator = random.Random(seed)
    return [order_line(generator) for _ in range(count)]


def right(answer: str, reference: str) -> float:
    """The quality of an answer: 1 where all three parts are right, else 0."""
    return float(answer.strip() == reference)


def _reference(letters: str, number: int, generator: random.Random) -> str:
    if generator.random() < 0.5:
        letters = letters.lower()
    return f"{letters}{generator.choice(('', '-', ' ', '/'))}{number}"


def _date(day: int, month: int, year: int, generator: random.Random) -> str:
    short = year % 100 if generator.random() < 0.4 else year
    name = MONTHS[month] if generator.random() < 0.5 else MONTHS[month].title()
    forms = (
        f"{day} {name} {short}",
        f"{name} {day} {short}",
        f"{day}.{month + 1}.{short}",
        f"{year}-{month + 1}-{day}",
    )
    return generator.choice(forms)


def _sum(cents: int, generator: random.Random) -> str:
    whole, rest = divmod(cents, 100)
    grouped = f"{whole:,}" if generator.random() < 0.4 else str(whole)
    if rest == 0 and generator.random() < 0.5:
        return grouped
    if "," not in grouped and generator.random() < 0.3:
        return f"{grouped},{rest:02}"
    return f"{grouped}.{rest:02}"


def _with_noise(text: str, generator: random.Random) -> str:
    """Some lines lose or double a letter or a space here and there; digits stay."""
    share = generator.choice((0.0, 0.0, 0.03, 0.08))
    noisy = []
    for letter in text:
        drawn = generator.random()
        if letter.isdigit() or drawn >= share:
            noisy.append(letter)
        elif drawn < share / 2 and letter.isalpha() and letter.islower():
            noisy.append(letter * 2)
        elif letter == " ":
            noisy.append("  ")
        else:
            noisy.append(letter)
    return "".join(noisy)
