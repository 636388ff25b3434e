"""Every limit on what a peer, a file or a socket may send, in one place.

The kernel's limits on one `execve` string (131,071 bytes and its NUL) and on the sum of all
(a quarter of the stack limit, at least about 2 MiB with the usual 8 MiB) are checked when a job is
submitted, so that a job which can never start is refused at once.
"""

FRAME_BYTES_MAX = 4 * 1024 * 1024
BATCH_JOBS_MAX = 1_000
ARGUMENTS_MAX = 65_536
EXEC_STRING_BYTES_MAX = 131_071
EXEC_TOTAL_BYTES_MAX = 1_900_000
ENVIRONMENT_VARIABLES_MAX = 16_384
CANCEL_JOBS_MAX = 1_000
"""Jobs of one `cancel_jobs`"""
LIST_JOBS_MAX = 10_000
LIST_EVENTS_MAX = 5_000
LIST_RESULTS_MAX = 10_000
REASON_CHARACTERS_MAX = 500
LEDGER_RECORD_BYTES_MAX = 8 * 1024 * 1024
SECRET_SPANS_BYTES_MAX = 1024 * 1024
"""What the names of credential variables may add to a stored command."""
PROGRESS_TEXT_BYTES_MAX = 1_024
"""Bytes of the text of one `report_progress`"""
PROGRESS_STEPS_MAX = 1_000_000_000_000
"""Steps of one `report_progress`"""
REQUEST_IDS_KEPT = 65_536
LOG_TAIL_BYTES = 8_192
SOCKET_PATH_BYTES_MAX = 107
"""Bytes of a socket's path: `sun_path` of unix(7), less its NUL"""
