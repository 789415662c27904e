"""`python -m shoal`."""

from shoal.cli.app import main

main()
