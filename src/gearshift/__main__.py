"""`python -m gearshift`."""

from gearshift.cli.main import main

if __name__ == "__main__":
    main()
