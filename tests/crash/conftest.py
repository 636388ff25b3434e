from tests.support.process_fixtures import bench, host, registry
from tests.support.run_fixtures import make_run, run

__all__ = ["bench", "host", "make_run", "registry", "run"]
