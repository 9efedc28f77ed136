"""The caller that has to go when no seat is left."""

from dataclasses import dataclass

from gearshift.runtime.wire.seats import MOST_LOOKED_AT, Seats

ATTACKER, HOME, OFFICE = "192.0.2.1", "192.0.2.2", "192.0.2.3"


@dataclass(eq=False)
class Guest:
    waited_for_since_s: float | None

    def abort(self) -> None: ...


def seated(*addresses: str | None, most_of_address: int = 3) -> tuple[Seats, list[Guest]]:
    seats, guests = Seats(most_of_address), [Guest(number) for number in range(len(addresses))]
    for guest, address in zip(guests, addresses, strict=True):
        seats.add(guest, address)
    return seats, guests


def leave_in_turn(seats: Seats) -> list[Guest]:
    left = []
    while (guest := seats.longest_waited_for()) is not None:
        seats.remove(guest)
        left.append(guest)  # type: ignore[arg-type]
    return left


def test_who_has_been_silent_for_longest_goes_first():
    seats, (first, second, third) = seated(HOME, OFFICE, None)
    first.waited_for_since_s = 5
    assert leave_in_turn(seats) == [second, third, first]
    assert len(seats) == 0


def test_strangers_go_before_those_who_have_shown_a_key():
    seats, (first, second, third) = seated(HOME, OFFICE, HOME)
    seats.vouch(first)
    seats.vouch(second)
    first.waited_for_since_s = 5
    assert leave_in_turn(seats) == [third, second, first]


def test_strangers_of_an_address_that_has_more_than_its_share_go_first():
    seats, guests = seated(HOME, *[ATTACKER] * 5, OFFICE)
    assert leave_in_turn(seats) == [guests[1], guests[2], guests[0], *guests[3:]]


def test_one_address_alone_may_have_all_seats():
    seats, guests = seated(*[HOME] * 10)
    assert len(seats) == 10
    assert leave_in_turn(seats) == guests


def test_an_address_of_ipv6_is_its_network_and_one_of_ipv4_the_same_in_both_forms():
    seats, guests = seated(HOME, "2001:db8::1", "2001:db8::2", "2001:db8::1:2%eth0", most_of_address=2)
    assert leave_in_turn(seats)[0] is guests[1]
    seats, guests = seated("2001:db8::1", HOME, f"::ffff:{HOME}", most_of_address=1)
    assert leave_in_turn(seats)[0] is guests[1]


def test_who_waits_for_the_server_keeps_the_seat():
    seats, (first, second) = seated(HOME, HOME)
    first.waited_for_since_s = None
    assert leave_in_turn(seats) == [second]
    assert len(seats) == 1


def test_among_many_few_are_looked_at_and_all_in_turn():
    seats, guests = seated(*[HOME] * 3 * MOST_LOOKED_AT, most_of_address=10_000)
    for number, guest in enumerate(reversed(guests)):
        guest.waited_for_since_s = number if number else None
    first, second, third = (seats.longest_waited_for() for _ in range(3))
    assert [first, second, third] == [guests[each * MOST_LOOKED_AT - 1] for each in (1, 2)] + [guests[-2]]


def test_who_has_left_may_leave_again_and_is_not_known():
    seats, (first, second) = seated(HOME, HOME)
    for _ in range(2):
        seats.remove(first)
    seats.vouch(first)
    assert leave_in_turn(seats) == [second]
