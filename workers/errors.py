"""What can go wrong while a job is worked on, by whose fault it is."""

from __future__ import annotations


class WorkerError(Exception):
    """Base of all errors of this package."""


class SoftTimeLimit(BaseException):
    """The soft time limit has passed: save what there is and end (notes/fleet.md, 11)."""


class HandBack(BaseException):
    """The worker is stopping and its grace is over: let go of everything, another worker does the job."""


class CancelledByOwnerError(WorkerError):
    """The owner cancelled the job; seen between two steps."""


class LeaseLostError(WorkerError):
    """The job was taken away from this attempt; nothing it does counts any more (nobody's fault)."""
