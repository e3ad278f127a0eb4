"""The errors of this client."""

from typing import Any, Mapping, NoReturn, Optional

from branded_phone_numbers_client.models.problem import Problem


class OpenApiException(Exception):
    """The base of all errors of this client."""


class ApiTypeError(OpenApiException, TypeError):
    pass


class ApiValueError(OpenApiException, ValueError):
    pass


class ApiAttributeError(OpenApiException, AttributeError):
    pass


class ApiKeyError(OpenApiException, KeyError):
    pass


class ApiException(OpenApiException):
    """A response other than a page; as text, ``<status> <title>: <detail>``."""

    status: int
    """The status code of the response; 0 if there was no response."""
    headers: Optional[Mapping[str, str]]
    """The headers of the response; names are case-insensitive."""
    body: Optional[str]
    """The body of the response."""
    problem: Optional[Problem]
    """The problem that the service sent; ``None`` if the response is not a problem, such as one from a proxy."""
    request_id: Optional[str]
    """The ``X-Request-Id`` of the response, which finds the request in the service's log."""

    def __init__(
        self,
        status: int = 0,
        reason: Optional[str] = None,
        http_resp: Any = None,
        *,
        body: Optional[str] = None,
        data: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        found: Optional[str] = None,
    ) -> None:
        self.status = status if http_resp is None else http_resp.status
        self.reason = reason if http_resp is None else http_resp.reason
        self.headers = headers if http_resp is None else http_resp.headers
        self.body = body if http_resp is None else http_resp.data.decode("utf-8", "replace")
        self.problem = _read_problem(self.body)
        self.request_id = (self.headers or {}).get("X-Request-Id")
        self.data = self.problem if data is None else data
        self._found = found
        super().__init__(self.status, self.reason)

    @classmethod
    def from_response(cls, *, http_resp: Any, body: Optional[str], data: Any) -> NoReturn:
        kinds = {
            400: BadRequestException,
            401: UnauthorizedException,
            403: ForbiddenException,
            404: NotFoundException,
            409: ConflictException,
            422: UnprocessableEntityException,
        }
        kind = ServiceException if 500 <= http_resp.status <= 599 else kinds.get(http_resp.status, ApiException)
        raise kind(http_resp=http_resp, body=body, data=data)

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.status} {self.problem.title}: {self.problem.detail}"
        if self.headers is None:
            return f"{self.reason}"
        if self.status == 304:
            return "304 Not Modified: page_if_changed returns this as a value"
        if self._found is not None:
            return f"{self.status} Unexpected Response: {self._found}"
        if 200 <= self.status <= 299:
            return f"{self.status} Unexpected Response: not a page of numbers: {(self.body or '')[:100]}"
        found = self.headers.get("Content-Type") or "no Content-Type"
        return f"{self.status} Unexpected Response: {found} instead of application/problem+json"


def _read_problem(body: Optional[str]) -> Optional[Problem]:
    """Returns the problem in a body, or ``None`` if a proxy sent something else: HTML, other JSON, nothing."""
    try:
        return None if body is None else Problem.from_json(body)
    except (ValueError, TypeError, AttributeError):
        return None


class BadRequestException(ApiException):
    pass


class UnauthorizedException(ApiException):
    pass


class ForbiddenException(ApiException):
    pass


class NotFoundException(ApiException):
    pass


class ConflictException(ApiException):
    pass


class UnprocessableEntityException(ApiException):
    pass


class ServiceException(ApiException):
    pass
