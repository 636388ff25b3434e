"""`python -m praxist_zmq` is the same command as `praxist-zmq`."""

from .cli.main import main

if __name__ == "__main__":
    main()
