"""The Python client: submit experiments, wait for them, ask about them.

    with Client("runs/one") as client:
        job = client.submit(peer="p1", tag="t1", command=["python", "x.py"]).job
        print(client.wait(job.job).exit_code)

Standard library and pyzmq only, so that a command starts fast.
"""

from .client import Client
from .lease import LeaseInfo
from .views import BlockerInfo, CancelInfo, Event, JobInfo, RefusedError, SubmitResult

__all__ = [
    "BlockerInfo",
    "CancelInfo",
    "Client",
    "Event",
    "JobInfo",
    "LeaseInfo",
    "RefusedError",
    "SubmitResult",
]
