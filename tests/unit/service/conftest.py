from tests.support.process_fixtures import bench, host, registry

__all__ = ["bench", "host", "registry"]
