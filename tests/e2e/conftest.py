from tests.support.run_fixtures import make_run, run

__all__ = ["make_run", "run"]
