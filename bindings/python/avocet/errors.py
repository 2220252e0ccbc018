"""What can go wrong, with the library's own text."""


class AvocetError(Exception):
    """Any failure inside the library; `status` is its number."""

    def __init__(self, text: str, status: int = 0):
        super().__init__(text)
        self.status = status


class FormatError(AvocetError):
    """A file is damaged or has another format."""


class UnsupportedError(AvocetError):
    """Valid, but not supported."""


class ArgumentError(AvocetError, ValueError):
    """An argument is wrong."""


class LimitError(AvocetError):
    """A limit was exceeded."""


class ContextError(AvocetError):
    """The context is too small."""


class FullError(AvocetError):
    """No room left; `retry_seconds` says when to try again, where that is known."""

    retry_seconds: float = 0.0


class CancelledError(AvocetError):
    """Cancelled by the caller."""


class NotFoundError(AvocetError, LookupError):
    """There is no such thing."""


class TemplateError(AvocetError):
    """The chat template failed."""


class DeadlineError(AvocetError, TimeoutError):
    """The deadline cannot be met."""


class DeviceError(AvocetError):
    """The device failed. The request that was computed is lost; the engine can be used again."""


class NetworkError(AvocetError):
    """The network transfer failed."""


class OutOfMemoryError(AvocetError, MemoryError):
    """Out of memory."""


class InputOutputError(AvocetError):
    """Input or output failed."""


_BY_STATUS = {1: OutOfMemoryError, 2: InputOutputError, 3: FormatError, 4: UnsupportedError,
              5: ArgumentError, 6: LimitError, 7: ContextError, 8: FullError, 9: CancelledError,
              10: NotFoundError, 11: NetworkError, 12: TemplateError, 13: DeadlineError,
              14: DeviceError}


def exception_of(status: int):
    return _BY_STATUS.get(status, AvocetError)
