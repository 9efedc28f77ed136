"""`gearshift completion`."""

import click
from click.shell_completion import get_completion_class

from gearshift.cli.common.output import Output, verb

PROGRAM, VARIABLE = "gearshift", "_GEARSHIFT_COMPLETE"
EXAMPLES = """\b
gearshift completion bash > ~/.local/share/bash-completion/completions/gearshift
gearshift completion zsh > ~/.zfunc/_gearshift          # with fpath+=~/.zfunc before compinit in ~/.zshrc
gearshift completion fish > ~/.config/fish/completions/gearshift.fish
"""


@click.command("completion", epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@verb
def command(output: Output, shell: str) -> None:
    """Print what makes SHELL complete verbs, options and their choices."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.Group(PROGRAM), {}, PROGRAM, VARIABLE).source()
    output.json({"shell": shell, "script": script})
    if not output.json_alone:
        click.echo(script)
