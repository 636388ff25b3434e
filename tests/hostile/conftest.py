from tests.support.process_fixtures import bench
from tests.support.run_fixtures import make_run, run

__all__ = ["bench", "make_run", "run"]
