"""`gearshift doctor`."""

import click
import msgspec

from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import milliseconds
from gearshift.hardware import GIB
from gearshift.verbs.doctor import doctor
from gearshift.verbs.doctor import warm as compile_simulator


@click.command("doctor")
@click.option("--warm", is_flag=True, help="Also compile the simulator now, so that the first plan need not.")
@verb
def command(output: Output, warm: bool) -> None:
    """Say what this machine offers: cores, memory, extras, and what is missing."""
    if warm:
        with output.progress() as tell:
            compile_simulator(tell)
    machine = doctor()
    output.json(msgspec.to_builtins(machine))
    made = table("This machine", "", "")
    made.add_row("system", f"{machine.system}, Python {machine.python}")
    quota = "" if machine.quota_cores is None else f", by a quota the time of {machine.quota_cores:g}"
    made.add_row("cores", f"{machine.cores}{quota}")
    made.add_row("memory", f"{machine.memory_bytes / GIB:.1f} GiB, {machine.free_memory_bytes / GIB:.1f} GiB free")
    for extra, version in machine.extras.items():
        made.add_row(f"extra {extra}", version or "not installed")
    for name, check in machine.actuators.items():
        took = "" if check.took_s is None else f", a change took {milliseconds(check.took_s)} at most"
        made.add_row(f"cores by {name}", f"works{took}" if check.works else f"not here: {check.why}")
    output.show(made)
    for advice in machine.advice:
        output.say(f"- {advice}")
