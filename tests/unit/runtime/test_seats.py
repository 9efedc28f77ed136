"""Who has to go where there is no seat left."""

from dataclasses import dataclass

from gearshift.runtime.seats import MOST_LOOKED_AT, Seats

ATTACKER, HOME, OFFICE = "192.0.2.1", "192.0.2.2", "192.0.2.3"


@dataclass(eq=False)
class Guest:
    waited_for: bool = True

    def abort(self) -> None: ...


def seated(*addresses: str | None, most_of_address: int = 3) -> tuple[Seats, list[Guest]]:
    seats, guests = Seats(most_of_address), [Guest() for _ in addresses]
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
    seats.turned(first)
    assert leave_in_turn(seats) == [second, third, first]
    assert len(seats) == 0


def test_strangers_go_before_those_who_have_shown_a_key():
    seats, (first, second, third) = seated(HOME, OFFICE, HOME)
    seats.vouch(first)
    seats.vouch(second)
    seats.turned(first)
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
    first.waited_for = False
    assert leave_in_turn(seats) == [second]
    assert len(seats) == 1


def test_where_all_wait_for_the_server_few_are_looked_at():
    seats, guests = seated(*[HOME] * 5 * MOST_LOOKED_AT, most_of_address=10_000)
    looked_at = 0

    class Busy(Guest):
        @property
        def waited_for(self) -> bool:  # type: ignore[override]
            nonlocal looked_at
            looked_at += 1
            return False

        @waited_for.setter
        def waited_for(self, value: bool) -> None: ...

    for guest in guests:
        guest.__class__ = Busy
    assert seats.longest_waited_for() is None
    assert looked_at == MOST_LOOKED_AT


def test_who_has_left_may_leave_again_and_has_no_turn():
    seats, (first, second) = seated(HOME, HOME)
    for _ in range(2):
        seats.remove(first)
    seats.turned(first)
    seats.vouch(first)
    assert leave_in_turn(seats) == [second]
